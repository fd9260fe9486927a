//! A parser and an interpreter of PTX, for kernels of integers.
