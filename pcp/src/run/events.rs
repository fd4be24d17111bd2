//! `tensorboard/`: the metrics of `metrics.jsonl` and the sizes of the clusters, for TensorBoard.
//!
//! An event file is a sequence of records: length, a checksum of the length, the event, a checksum of the event. An event is a protocol
//! buffer with the time, the step and its values. The first record names the version; then comes one event for every epoch.

use super::{EpochRecord, RunFolder};
use pcp_core::error::Result;
use pcp_core::io::atomic::{append, is_there, make_folder, read_bytes, write_bytes};
use pcp_core::io::proto::Message;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// TensorBoard reads files that have `tfevents` in their names.
const FILE: &str = "tensorboard/events.out.tfevents.0.pcp";
const BUCKETS: usize = 30;

impl RunFolder {
    fn events(&self) -> PathBuf {
        self.file(FILE)
    }

    /// Adds an epoch, the `epochs`-th over all rounds; `sizes` are those of its clusters.
    pub fn append_events(&self, record: &EpochRecord, epochs: u32, sizes: &[usize]) -> Result<()> {
        let path = self.events();
        make_folder(&self.file("tensorboard"))?;
        let begun = std::fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        let mut bytes = if begun { Vec::new() } else { beginning() };
        bytes.extend(epoch_event(record, epochs, sizes));
        append(&path, &bytes)
    }

    /// Makes the events those of `records`, and no others. Where they were not all there, they are made again without the sizes of clusters,
    /// which nothing else has; that is said.
    pub fn restore_events(&self, records: &[EpochRecord]) -> Result<Option<String>> {
        let path = self.events();
        let bytes = if is_there(&path)? { read_bytes(&path)? } else { Vec::new() };
        let (end, whole) = end_of(&bytes, records.len() + 1);
        if whole || records.is_empty() {
            if end < bytes.len() {
                write_bytes(&path, &bytes[..end])?;
            }
            return Ok(None);
        }
        make_folder(&self.file("tensorboard"))?;
        let epochs = records.iter().zip(1..).flat_map(|(record, epoch)| epoch_event(record, epoch, &[]));
        write_bytes(&path, &beginning().into_iter().chain(epochs).collect::<Vec<u8>>())?;
        Ok(Some("TensorBoard's file was missing or damaged: it is restored, without the sizes of the clusters".into()))
    }
}

/// The first record, which names the version.
fn beginning() -> Vec<u8> {
    framed(&event(0).bytes(3, "brain.Event:2"))
}

/// The record of an epoch.
fn epoch_event(record: &EpochRecord, epochs: u32, sizes: &[usize]) -> Vec<u8> {
    let scalars = scalars(record);
    let mut summary =
        Message::new().each(scalars, |m, (tag, v)| m.message(1, &Message::new().bytes(1, tag).float(2, v as f32)));
    if !sizes.is_empty() {
        let value = Message::new().bytes(1, "clusters/sizes").message(5, &histogram(sizes));
        summary = summary.message(1, &value);
    }
    framed(&event(i64::from(epochs)).message(5, &summary))
}

/// The end of the `count`-th record, or of the last sound one before it, and whether there are as many.
fn end_of(bytes: &[u8], count: usize) -> (usize, bool) {
    let mut end = 0;
    for _ in 0..count {
        match record_at(&bytes[end..]) {
            Some(length) => end += length,
            None => return (end, false),
        }
    }
    (end, true)
}

/// The length of the record that `bytes` begin with; `None` where it is incomplete or its checksums are wrong.
fn record_at(bytes: &[u8]) -> Option<usize> {
    let (length, rest) = bytes.split_at_checked(8)?;
    let (sum, rest) = rest.split_at_checked(4)?;
    let size = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let (data, rest) = rest.split_at_checked(size)?;
    (sum == masked(length) && rest.get(..4)? == masked(data)).then_some(size + 16)
}

fn event(step: i64) -> Message {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64());
    Message::new().double(1, now).int(2, step)
}

/// The scalars of an epoch.
fn scalars(r: &EpochRecord) -> Vec<(&'static str, f64)> {
    let always = [
        ("loss/total", r.loss),
        ("lr", f64::from(r.lr)),
        ("clusters/K", r.clusters as f64),
        ("clusters/not_empty", r.non_empty as f64),
        ("clusters/kept", r.kept),
        ("clusters/pulled_back", r.pulled_back as f64),
        ("clusters/dropped", r.dropped as f64),
        ("clusters/instances", r.instances as f64),
        ("speed/images_per_second", r.images_per_second),
        ("speed/seconds", r.seconds),
    ];
    let sometimes = [
        ("loss/instances", r.loss_instance),
        ("loss/clusters", r.loss_cluster),
        ("loss/warm_up", r.loss_is),
        ("clusters/churn", r.churn),
        ("features/effective_rank", r.effective_rank),
        ("accuracy/kNN", r.knn),
        ("accuracy/classifier", r.classifier),
    ];
    always.into_iter().chain(sometimes.into_iter().filter_map(|(tag, v)| Some((tag, v?)))).collect()
}

/// A histogram of sizes, in buckets of equal width; a bucket contains sizes above the previous limit, up to its own.
fn histogram(sizes: &[usize]) -> Message {
    let sizes: Vec<f64> = sizes.iter().map(|s| *s as f64).collect();
    let (least, most) = sizes.iter().fold((f64::INFINITY, 0.0f64), |(a, b), s| (a.min(*s), b.max(*s)));
    let buckets = if most > least { BUCKETS } else { 1 };
    let width = (most - least) / buckets as f64;
    let limits: Vec<f64> = (1..=buckets).map(|i| if i == buckets { most } else { least + width * i as f64 }).collect();
    let mut counts = vec![0.0; buckets];
    for size in &sizes {
        let bucket = limits.iter().position(|limit| size <= limit).unwrap_or(buckets - 1);
        counts[bucket] += 1.0;
    }
    let sum: f64 = sizes.iter().sum();
    let squares: f64 = sizes.iter().map(|s| s * s).sum();
    Message::new()
        .double(1, least)
        .double(2, most)
        .double(3, sizes.len() as f64)
        .double(4, sum)
        .double(5, squares)
        .doubles(6, &limits)
        .doubles(7, &counts)
}

/// A message as a record.
fn framed(message: &Message) -> Vec<u8> {
    let data = message.clone().into_bytes();
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), &data, &masked(&data)].concat()
}

/// The masked checksum of TensorFlow's record format.
fn masked(bytes: &[u8]) -> [u8; 4] {
    let sum = crc32c(bytes);
    (sum.rotate_right(15).wrapping_add(0xa282_ead8)).to_le_bytes()
}

/// CRC-32C (Castagnoli), bit by bit: events are small.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_standards() {
        // RFC 3720, B.4, and the usual check value.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn records_are_cut_where_they_end() {
        let one = framed(&Message::new().int(2, 1));
        let two = framed(&Message::new().int(2, 300));
        let all = [one.clone(), two.clone(), two[..5].to_vec()].concat();
        assert_eq!(end_of(&all, 0), (0, true));
        assert_eq!(end_of(&all, 1), (one.len(), true));
        assert_eq!(end_of(&all, 2), (one.len() + two.len(), true));
        assert_eq!(end_of(&all, 9), (one.len() + two.len(), false), "an incomplete record is ignored");
        assert_eq!(end_of(&[255; 40], 3), (0, false), "nor is a length beyond the file");
        for at in 0..one.len() {
            let mut flipped = all.clone();
            flipped[at] ^= 4;
            assert_eq!(end_of(&flipped, 2), (0, false), "byte {at}");
        }
        // Eight bytes of length, its checksum, two of data, its checksum.
        assert_eq!((one.len(), &one[..8], &one[12..14]), (18, &[2, 0, 0, 0, 0, 0, 0, 0][..], &[0x10, 1][..]));
    }

    #[test]
    fn every_size_is_in_one_bucket() {
        let of = |sizes: &[usize]| histogram(sizes).into_bytes();
        let doubles =
            |bytes: &[u8]| -> Vec<f64> { bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect() };
        // Five doubles with a byte of key each, then the packed limits and counts, each with a byte of key and one of length.
        let parts = |bytes: &[u8], n: usize| (doubles(&bytes[47..47 + 8 * n]), doubles(&bytes[47 + 8 * n + 2..]));
        let (limits, counts) = parts(&of(&[4, 4, 4]), 1);
        assert_eq!((limits, counts), (vec![4.0], vec![3.0]));
        let sizes: Vec<usize> = (0..=300).collect();
        let bytes = of(&sizes);
        // 30 doubles are 240 bytes: two bytes of length.
        let limits = doubles(&bytes[48..48 + 240]);
        let counts = doubles(&bytes[48 + 240 + 3..]);
        assert_eq!((limits[0], limits[29], counts.len()), (10.0, 300.0, 30));
        assert_eq!((counts[0], counts[1], counts.iter().sum::<f64>()), (11.0, 10.0, 301.0));
    }
}
