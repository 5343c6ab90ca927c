"""What CMake writes for a build."""

__version__: str
torch_release: str
"""The release of PyTorch that the extension module was compiled with: "2.13"."""
