//! Reading and writing of files: whole or not at all, CSV, NumPy's arrays, safetensors, matrices of any kind.

pub mod atomic;
pub mod csv;
pub mod matrix;
pub mod npy;
pub mod table;
pub mod tensors;
