"""A real transformer on a real GPU with continuous batching, and what each way of sending work gets out of it.

    python -m benchmarks.gpu --out gpu.json

It needs an NVIDIA GPU and PyTorch, no registry and no weights: `tools/gpu-wheels.sh` gathers the few packages that
Penstock itself needs there.
"""
