//! Tests that run the compiler: see `tests/`.
