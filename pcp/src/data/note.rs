//! What processes tell each other of the images that they have read.

use super::decode::Reason;
use super::images::{Noted, PixelSums};
use pcp_core::peers::Peers;

/// What became of an image: its digest and sums, or why it cannot be read.
pub(super) type Outcome = Result<Noted, Reason>;

/// The process that reads each of the images to learn from, and then of those to test on.
pub(super) fn readers(train: usize, test: usize, peers: &dyn Peers) -> Vec<usize> {
    let of = |n: usize| (0..n).map(move |r| peers.holder(r, n));
    of(train).chain(of(test)).collect()
}

/// Outcomes as bytes.
pub(super) fn written(outcomes: &[Outcome]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok((digest, sums)) => {
                bytes.push(1);
                bytes.extend(digest);
                let numbers = [sums.pixels].into_iter().chain(sums.sum).chain(sums.squares);
                bytes.extend(numbers.flat_map(u64::to_le_bytes));
            }
            Err(reason) => {
                bytes.push(0);
                bytes.extend((reason.len() as u64).to_le_bytes());
                bytes.extend(reason.as_bytes());
            }
        }
    }
    bytes
}

/// The reverse of [`written`]; it ends where the bytes do.
pub(super) fn read(mut bytes: &[u8]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while let Some(outcome) = read_one(&mut bytes) {
        outcomes.push(outcome);
    }
    outcomes
}

fn read_one(bytes: &mut &[u8]) -> Option<Outcome> {
    let (tag, rest) = bytes.split_first()?;
    *bytes = rest;
    let mut take = |n: usize| {
        let (taken, rest) = bytes.split_at_checked(n)?;
        *bytes = rest;
        Some(taken)
    };
    if *tag == 0 {
        let length = u64::from_le_bytes(take(8)?.try_into().ok()?);
        return Some(Err(String::from_utf8_lossy(take(usize::try_from(length).ok()?)?).into_owned()));
    }
    let digest: [u8; 32] = take(32)?.try_into().ok()?;
    let mut numbers = [0u64; 7];
    for number in &mut numbers {
        *number = u64::from_le_bytes(take(8)?.try_into().ok()?);
    }
    let [pixels, a, b, c, d, e, f] = numbers;
    Some(Ok((digest, PixelSums { pixels, sum: [a, b, c], squares: [d, e, f] })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_core::peers::Alone;
    use pcp_core::peers::parts::together;

    #[test]
    fn outcomes_are_read_as_they_were_written() {
        let sums = PixelSums { pixels: 9, sum: [1, 2, u64::MAX], squares: [4, 5, 6] };
        let all: Vec<Outcome> =
            vec![Ok(([7; 32], sums)), Err("not a picture".into()), Err(String::new()), Ok(([0; 32], sums))];
        let bytes = written(&all);
        assert_eq!(read(&bytes), all);
        assert!(read(&[]).is_empty());
        // What is cut off is not made up.
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end])[..], all[..read(&bytes[..end]).len()]);
        }
    }

    #[test]
    fn images_to_learn_from_and_to_test_on_are_divided_each() {
        assert_eq!(readers(3, 2, &Alone), [0; 5]);
        assert_eq!(together(2, |peers| readers(3, 4, &*peers))[1], [0, 1, 1, 0, 0, 1, 1]);
    }
}
