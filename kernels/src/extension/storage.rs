//! Tensors of Burn's Flex backend over blocks of ours.

use crate::memory::Scratch;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{AllocationProperty, Bytes, DType, Shape as Dims};
use burn_std::{AccessError, AccessPolicy, AllocationController, bf16};
use std::mem::MaybeUninit;

/// Tensor storage from the scratch pool: 64-byte aligned, and given back to the pool when the tensor is dropped.
struct Pooled {
    block: Scratch,
    bytes: usize,
}

impl AllocationController for Pooled {
    fn alloc_align(&self) -> usize {
        64
    }
    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }
    unsafe fn memory_mut(&mut self, _: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        // SAFETY: the block holds at least `bytes` bytes and is borrowed mutably with `self`.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.block.ptr().0 as *mut _, self.bytes) })
    }
    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        // SAFETY: as above, for reading.
        Ok(unsafe { std::slice::from_raw_parts(self.block.ptr().0 as *const _, self.bytes) })
    }
}

/// A number that tensors hold.
pub trait Stored: Sized + 'static {
    /// Its name in Burn.
    const DTYPE: DType;
    /// The values of a tensor that [`contiguous`] has been through.
    fn values(t: &FlexTensor) -> &[Self];
    /// The whole storage, copied first when somebody else holds it.
    fn storage_mut(t: &mut FlexTensor) -> &mut [Self];
}

/// The same for every number.
macro_rules! stored {
    ($number:ty, $dtype:expr) => {
        impl Stored for $number {
            const DTYPE: DType = $dtype;
            fn values(t: &FlexTensor) -> &[$number] {
                t.as_slice().expect("a contiguous tensor of this number")
            }
            fn storage_mut(t: &mut FlexTensor) -> &mut [$number] {
                t.storage_mut()
            }
        }
    };
}
stored!(f32, DType::F32);
stored!(bf16, DType::BF16);

/// The first `len` numbers of a block made for them.
pub fn numbers<E: Stored>(block: &mut Scratch, len: usize) -> &mut [E] {
    assert!(len * size_of::<E>() <= size_of_val(block.as_ref()));
    // SAFETY: the block is initialised and long enough, its alignment is that of a cache line, and any bits are a number.
    unsafe { std::slice::from_raw_parts_mut(block.start().0, len) }
}

/// A tensor of the given dimensions over a block of scratch that was made for its numbers.
pub fn tensor<E: Stored>(block: Scratch, dims: &[usize]) -> FlexTensor {
    let bytes = size_of::<E>() * dims.iter().product::<usize>();
    let storage = Box::new(Pooled { block, bytes });
    // SAFETY: the controller's memory is initialised and `bytes` long.
    let bytes = unsafe { Bytes::from_controller(storage, bytes) };
    FlexTensor::new(bytes, Layout::contiguous(Dims::from(dims.to_vec())), E::DTYPE)
}

/// A tensor of a few values.
pub fn small(values: Vec<f32>, dims: &[usize]) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(Dims::from(dims.to_vec())), DType::F32)
}

/// The values of an f32 tensor that [`contiguous`] has been through.
pub fn values(t: &FlexTensor) -> &[f32] {
    f32::values(t)
}

/// Copies only when the layout asks for it; a contiguous part of a larger storage is left as it is.
pub fn contiguous(t: FlexTensor) -> FlexTensor {
    if t.layout().contiguous_offsets().is_some() { t } else { t.to_contiguous() }
}
