//! Writing of messages in the wire format of protocol buffers, which ONNX and TensorBoard files consist of. A few lines serve;
//! generated code would need a schema compiler in the build.

/// A message that is being written. Fields are given by their number in the schema and written in the order of the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// An empty one.
    pub fn new() -> Message {
        Message::default()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// A whole number (`int64`, `int32`, `enum`, `bool`).
    pub fn int(mut self, field: u32, value: i64) -> Message {
        self.key(field, 0);
        self.varint(value as u64);
        self
    }

    /// A `float`.
    pub fn float(mut self, field: u32, value: f32) -> Message {
        self.key(field, 5);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// A `double`.
    pub fn double(mut self, field: u32, value: f64) -> Message {
        self.key(field, 1);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// `bytes`, or a `string`.
    pub fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Message {
        self.key(field, 2);
        self.varint(value.as_ref().len() as u64);
        self.bytes.extend(value.as_ref());
        self
    }

    /// A message within this one.
    pub fn message(self, field: u32, value: &Message) -> Message {
        self.bytes(field, &value.bytes)
    }

    /// One field for each of `values`, written by `write`.
    pub fn each<T>(self, values: impl IntoIterator<Item = T>, write: impl Fn(Message, T) -> Message) -> Message {
        values.into_iter().fold(self, write)
    }

    /// `repeated double`, packed.
    pub fn doubles(self, field: u32, values: &[f64]) -> Message {
        self.bytes(field, values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// The encoded message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the format's documentation, and what follows from its rules.
    #[test]
    fn fields_are_as_the_format_has_them() {
        // The documentation's own examples: 150 in field 1, "testing" in field 2, that message in field 3.
        let inner = Message::new().int(1, 150);
        assert_eq!(inner.clone().into_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::new().bytes(2, "testing").into_bytes();
        assert_eq!(text, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        assert_eq!(Message::new().message(3, &inner).into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        // Negative numbers take ten bytes; field numbers from 16 on two.
        let negative = Message::new().int(1, -2).into_bytes();
        assert_eq!(negative, [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(Message::new().int(16, 0).into_bytes(), [0x80, 0x01, 0x00]);
        assert_eq!(Message::new().float(1, 1.0).into_bytes(), [0x0d, 0, 0, 0x80, 0x3f]);
        assert_eq!(Message::new().double(1, 1.0).into_bytes(), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(Message::new().doubles(1, &[1.0]).into_bytes(), [0x0a, 8, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(Message::new().each([1, 2], |m, v| m.int(1, v)).into_bytes(), [0x08, 1, 0x08, 2]);
    }
}
