import torch
from hypothesis import settings

# The first torch call is slow, and a failure must repeat.
settings.register_profile("regard", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("regard")
# Two test processes share the machine's cores; small tensors gain nothing from threads.
torch.set_num_threads(1)
