"""Every process believes that there is a GPU that Triton compiles for; Python imports this by itself."""

from triton.backends import backends

backends["nvidia"].driver.is_active = staticmethod(lambda: True)
