"""What a person looks at: matplotlib displays, and one page of HTML."""

from pskem.display._page import Page
from pskem.display._plots import (
    KernelImagesDisplay,
    TraceDisplay,
    WeightsDisplay,
    order_kernels,
)

__all__ = ["KernelImagesDisplay", "Page", "TraceDisplay", "WeightsDisplay", "order_kernels"]
