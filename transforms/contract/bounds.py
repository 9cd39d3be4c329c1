"""Bounds of the parts of a file of somebody else, which are counted before a library sees it.

A small file holds millions of parts, or a hundred that share their bytes. `docs/security.md` prints this table.
"""

from typing import NamedTuple


class ImageError(Exception):
    """An image that is rejected before the graph sees it."""

    def __init__(self, reason: str, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        """`unsupported_format`, `too_many_pixels`, `too_slow`, …, as in `pipeline.sources.faults`."""
        self.message = message
        self.path = path
        """The path in its source of a file that was not there or could not be opened; None otherwise."""


class Bound(NamedTuple):
    """The most of something that a file may hold, and the reject's reason, or the end, of one that holds more."""

    of: str
    what: str
    most: int
    reason: str = "too_slow"

    def check(self, count: int) -> None:
        """Refuses an image of more. Raises: ImageError: its reason."""
        if count > self.most:
            raise ImageError(self.reason, self.beyond(count))

    def beyond(self, count: int) -> str:
        """Returns the message of a file of more."""
        return f"the {self.of} has {count:,} {self.what} or more, where {self.most:,} are the limit"


JPEG_SEGMENTS = Bound("JPEG", "segments before its pixels", 10_000)  # real files have some hundreds
JPEG_LOOSE = Bound("JPEG", "bytes between segments, and of tables and frames", 1 << 20)  # taken singly by Pillow
JPEG_EXIF = Bound("JPEG", "segments of EXIF", 64)  # Pillow copies those before for each
JPEG_SCANS = Bound("JPEG", "scans", 100)  # each costs about a nanosecond a pixel, and the time that its bytes take
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
EXIF_SHARED = Bound("TIFF or EXIF", "bytes of tags beyond its own", 1 << 20)  # of tags that share an array
EXIF_HEADS = Bound("EXIF", "heads", 16)  # Pillow copies what follows for each
TIFF_SHARED = Bound("TIFF of JPEGs", "bytes of strips or tiles beyond its own", 1 << 20)
ISO_EXIF = Bound("AVIF or HEIF", "blocks of EXIF", 100)
ISO_EXTENTS = Bound("AVIF or HEIF", "items and their extents", 10_000)
ISO_SHARED = Bound("AVIF or HEIF", "bytes of items beyond its own", 1 << 20)  # of extents that share their bytes
ISO_BOXES = Bound("AVIF or HEIF", "boxes", 10_000)  # a phone's photo has about 100
FILE_BYTES = Bound("annotation of Pascal VOC or YOLO", "bytes", 4 << 20, "too_large")
VOC_ELEMENTS = Bound("annotation of Pascal VOC", "elements and attributes", 100_000, "too_large")
VOC_DEPTH = Bound("annotation of Pascal VOC", "levels", 50, "malformed_row")
OBJECTS = Bound("annotated image", "boxes and captions", 100_000, "too_large")
NAMES = Bound("file of names", "lines and commas", 100_000, "one line, the build ends")  # ImageNet-21k has 87,000

BOUNDS = tuple(each for each in globals().values() if isinstance(each, Bound))  # all, in the order of the page
