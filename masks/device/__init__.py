"""Masks, sampling and advancing on the device (a GPU): Triton kernels, and the same in plain torch operations.

Nothing here is imported before something that needs it: `import stepmask` loads neither torch nor triton.
"""
