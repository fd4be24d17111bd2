//! SIGHUP, which a closed terminal sends. A program that was started with it ignored (`nohup`) goes on.

#![allow(unsafe_code)]

/// Whether this process was started with the signal ignored.
#[cfg(unix)]
pub fn is_ignored() -> bool {
    // SAFETY: all zeros are a valid `sigaction`, and without a new one the call only writes the old one into it.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

/// Ignores the signal.
#[cfg(unix)]
pub fn ignore() {
    // SAFETY: no handler is installed that could break a rule of handlers.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
    }
}

/// There is no such signal.
#[cfg(not(unix))]
pub fn is_ignored() -> bool {
    false
}

#[cfg(not(unix))]
pub fn ignore() {}
