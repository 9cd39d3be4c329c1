"""Photos of 256×256 as JPEG, to random resized crops of 224×224, flipped or not, in batches."""
