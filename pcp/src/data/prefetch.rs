//! Items made in order by a separate thread, a few in advance.

use pcp_core::cancel::spawn;
use pcp_core::error::{Error, Result};
use std::sync::mpsc::{Receiver, sync_channel};

/// Number of items made in advance.
const AHEAD: usize = 2;

/// An iterator over items that a separate thread makes in advance. It ends after the first error; dropping it ends the thread.
pub struct Prefetch<T> {
    /// Items, then one `None`: if the channel closes before that, the thread panicked.
    receiver: Receiver<Option<Result<T>>>,
    ended: bool,
}

impl<T: Send + 'static> Prefetch<T> {
    /// The results of `make` for `items`.
    pub fn new<I>(items: I, mut make: impl FnMut(I::Item) -> Result<T> + Send + 'static) -> Prefetch<T>
    where
        I: IntoIterator,
        I::IntoIter: Send + 'static,
    {
        let (sender, receiver) = sync_channel(AHEAD);
        let items = items.into_iter();
        let first = sender.clone();
        let started = spawn("prefetch", move || {
            for item in items {
                let made = make(item);
                let failed = made.is_err();
                // A send fails when the stream was dropped.
                if sender.send(Some(made)).is_err() || failed {
                    return;
                }
            }
            let _ = sender.send(None);
        });
        if let Err(e) = started {
            // The channel has room: nothing was sent yet.
            let _ = first.send(Some(Err(e)));
        }
        Prefetch { receiver, ended: false }
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.ended {
            return None;
        }
        let received = self.receiver.recv();
        self.ended = !matches!(received, Ok(Some(Ok(_))));
        match received {
            Ok(item) => item,
            Err(_) => Some(Err(Error::training("the reader of images ended early", "please report this"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_order() {
        let squares: Result<Vec<u32>> = Prefetch::new(0..100u32, |i| Ok(i * i)).collect();
        assert_eq!(squares.unwrap(), (0..100).map(|i| i * i).collect::<Vec<_>>());
        assert_eq!(Prefetch::new(0..0u32, Ok).count(), 0);
    }

    #[test]
    fn the_first_error_is_the_last_item() {
        let mut stream = Prefetch::new(0..9, |i| if i < 2 { Ok(i) } else { Err(Error::data("broken", "mend it")) });
        assert_eq!((stream.next().unwrap().unwrap(), stream.next().unwrap().unwrap()), (0, 1));
        assert_eq!(stream.next().unwrap().unwrap_err().message, "broken");
        assert!(stream.next().is_none());
    }

    #[test]
    fn a_panic_is_an_error_and_not_an_early_end() {
        let mut stream = Prefetch::new(0..3, |i: i32| if i == 0 { Ok(i) } else { panic!("a test's own panic") });
        assert_eq!(stream.next().unwrap().unwrap(), 0);
        assert!(stream.next().unwrap().unwrap_err().message.contains("ended early"));
        assert!(stream.next().is_none());
    }

    #[test]
    fn a_dropped_stream_ends_its_thread() {
        let (sender, made) = std::sync::mpsc::channel();
        drop(Prefetch::new(0.., move |i: u64| {
            let _ = sender.send(i);
            Ok(i)
        }));
        // The channel closes when the thread ends; else this would never return.
        assert!(made.iter().count() <= AHEAD + 2);
    }
}
