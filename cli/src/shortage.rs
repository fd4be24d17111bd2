//! Running out of memory: an error with a hint instead of an abort.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;

/// The system's allocator. Where it has no memory left, the program ends with an error: nothing is half written, and a run goes on from its
/// last checkpoint.
struct Checked;

#[global_allocator]
static ALLOCATOR: Checked = Checked;

// SAFETY: every call is passed to the system's allocator unchanged, and so is what it returns.
unsafe impl GlobalAlloc for Checked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        checked(unsafe { System.realloc(pointer, layout, size) }, size)
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn checked(pointer: *mut u8, bytes: usize) -> *mut u8 {
    if pointer.is_null() {
        end(bytes);
    }
    pointer
}

/// Says what is lacking, without allocating anything, and ends the program.
#[cold]
fn end(bytes: usize) -> ! {
    let mut text = [0u8; 320];
    let mut rest = &mut text[..];
    // Longer than the text: nothing is cut off.
    let _ = writeln!(
        rest,
        "error: there is not enough memory: {bytes} bytes more were needed\nhint: use a smaller batch, width or size, fewer images or threads, \
         or allow more memory (ulimit -v); a run goes on from its last checkpoint with --resume"
    );
    let left = rest.len();
    let _ = std::io::stderr().write_all(&text[..text.len() - left]);
    std::process::exit(1)
}
