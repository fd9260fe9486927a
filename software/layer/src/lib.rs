//! A Vulkan layer that gives software drivers what NVIDIA's driver has: semaphores that processes and CUDA share.
