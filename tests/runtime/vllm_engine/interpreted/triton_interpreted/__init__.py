"""What vLLM's CPU build looks for before it uses kernels of Triton.

With ``TRITON_INTERPRET=1`` NumPy runs them, as they are.
"""
