"""Limits on the parts of a foreign file, checked before a library opens it.

A small file can hold millions of parts, or a hundred that share their bytes. `docs/security.md` prints this table.
"""

from typing import NamedTuple


class ImageError(Exception):
    """An image rejected before the graph."""

    def __init__(self, reason: str, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        """`unsupported_format`, `too_many_pixels`, `too_slow`, …, as in `pipeline.sources.faults`."""
        self.message = message
        self.path = path  # the path in the source of a file that was missing or could not be opened


class Bound(NamedTuple):
    """A limit on the parts of a file, and the reject reason or consequence beyond it."""

    of: str
    what: str
    most: int
    reason: str = "too_slow"

    def check(self, count: int) -> None:
        """Refuses an image beyond the limit. Raises: ImageError: the limit's reason."""
        if count > self.most:
            raise ImageError(self.reason, self.beyond(count))

    def beyond(self, count: int) -> str:
        """Returns the message for a file beyond the limit."""
        return f"the {self.of} has {count:,} {self.what} or more, above the limit of {self.most:,}"


JPEG_SEGMENTS = Bound("JPEG", "segments before its pixels", 10_000)  # real files have some hundreds
JPEG_LOOSE = Bound("JPEG", "bytes between segments, and of tables and frames", 1 << 20)  # taken singly by Pillow
JPEG_EXIF = Bound("JPEG", "segments of EXIF", 64)  # Pillow copies those before for each
JPEG_SCANS = Bound("JPEG", "scans", 100)  # each costs about a nanosecond a pixel, plus the time for its bytes
PNG_CHUNKS = Bound("PNG", "chunks", 250_000)
PNG_PROFILES = Bound("PNG", "colour profiles", 16)  # Pillow inflates each, for 2 ms
PNG_TEXTS = Bound("PNG", "texts that may be compressed", 32)  # each is up to 8 MB once inflated
GIF_BLOCKS = Bound("GIF", "blocks before its first frame", 100_000)  # XMP has some thousands
GIF_COMMENTS = Bound("GIF", "blocks of comments", 4_096)  # 1 MiB; Pillow copies those before for each
BMP_WIDTH = Bound("BMP of run lengths", "pixels in a row", 65_535)  # four bytes skip 255 rows, which Pillow allocates
BMP_RUNS = Bound("BMP of run lengths", "bytes", 16 << 20)
WEBP_CHUNKS = Bound("WebP", "chunks", 10_000)
EXIF_TAGS = Bound("TIFF or EXIF", "tags", 4_096)  # real ones hold about 100
EXIF_NUMBERS = Bound("TIFF or EXIF", "numbers in tags", 300_000)  # such as the places of strips, 11 µs each
EXIF_SHARED = Bound("TIFF or EXIF", "bytes of tags beyond its own", 1 << 20)  # tags may share an array
EXIF_HEADS = Bound("EXIF", "heads", 16)  # Pillow copies what follows for each
ROW_BYTES = Bound("row", "bytes of its images together", 512 << 20, "too_large")
ROW_PIXELS = Bound("row", "pixels of its images together", 2_500_000_000)  # 1,200 frames of a video; 10 ns each
WINDOWS = Bound("row", "bytes of its windows together", 256 << 20, "too_large")
PAGES = Bound("image", "pages or frames", 10_000)  # copies and masks in a TIFF, too
TIFF_SHARED = Bound("TIFF of JPEGs", "bytes of strips or tiles beyond its own", 1 << 20)
ISO_EXIF = Bound("AVIF or HEIF", "blocks of EXIF", 100)
ISO_EXTENTS = Bound("AVIF or HEIF", "items and their extents", 10_000)
ISO_SHARED = Bound("AVIF or HEIF", "bytes of items beyond its own", 1 << 20)  # extents may share their bytes
ISO_BOXES = Bound("AVIF or HEIF", "boxes", 10_000)  # a phone's photo has about 100
FILE_BYTES = Bound("annotation of Pascal VOC or YOLO", "bytes", 4 << 20, "too_large")
VOC_ELEMENTS = Bound("annotation of Pascal VOC", "elements and attributes", 100_000, "too_large")
VOC_DEPTH = Bound("annotation of Pascal VOC", "levels", 50, "malformed_row")
OBJECTS = Bound("annotated image", "boxes and captions", 100_000, "too_large")
POINTS = Bound("annotated image", "numbers of shapes and key points, letters of run lengths", 1_000_000, "too_large")
OUTLINES = Bound("drawn mask", "pixels of outlines", 5_000_000, "too_large")  # a dense one has 500,000; 52 bytes each
CSV_COLUMNS = Bound("CSV", "columns", 1_000_000, "one line, the build ends")  # 850,000 sites of methylation
CSV_SIGNS = Bound("record of CSV", "separators, quotes and line breaks", 8 << 20, "too_large")  # 60 bytes each
JSON_SIGNS = Bound("row of JSON", "commas, colons and opening brackets", 8 << 20, "too_large")  # 170 bytes each
JSON_ITEM = JSON_SIGNS._replace(of="item of a JSON document", reason="one line, the build ends")
JSON_ROWS = Bound("element of a JSON document", "characters of its rows with kept values", 64 << 20, "too_large")
JSON_KEPT = Bound("JSON document", "characters of kept values in all rows", 4 << 30, "one line, the build ends")
TOKENIZED = Bound("text for a model's own tokenizer", "characters", 4 << 20, "too_large")  # 290 bytes each
REJECTS = Bound("chunk of rows", "rejects", 1 << 22, "one line, the build ends")  # 600 bytes each
FEATURES = Bound("adopted file or features.json", "features", 10_000, "one line")
RECORD_FEATURES = Bound("tf.train.Example", "features", 100_000, "damaged")  # 1 kB each
RECORD_VALUES = Bound("list of a tf.train.Example", "values of bytes", 8 << 20, "damaged")  # 200 bytes each
PADDED_BYTES = Bound("row of a feature", "bytes, padded to its stated lengths", 16 << 30, "one line")
SHARD_RECORDS = Bound("shard of a dataset", "records", 1 << 28, "one line")  # 9 bytes each, of an adopted one
NAMES = Bound("file of names", "lines and commas", 100_000, "one line, the build ends")  # ImageNet-21k has 87,000

BOUNDS = tuple(each for each in globals().values() if isinstance(each, Bound))  # all, in the order of the page
