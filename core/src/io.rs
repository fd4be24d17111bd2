//! Reading and writing of files: atomic writes, names, CSV, NumPy's arrays, safetensors, matrices, and the wire format of protocol
//! buffers.

pub mod atomic;
pub mod csv;
pub mod matrix;
pub mod names;
pub mod npy;
pub mod proto;
pub mod table;
pub mod tensors;
