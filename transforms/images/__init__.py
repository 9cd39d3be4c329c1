"""Images and what lies on them: masks, boxes, key points."""
