"""Single rows of published versions: finding them by their keys, and versions without some of them."""
