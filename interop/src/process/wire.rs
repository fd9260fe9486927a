//! Encoding of numbers and short texts in messages.
//!
//! Numbers are little-endian. Values have a fixed size or a length before them. A reader accepts
//! only what a writer would have written, so decoding and encoding again gives the same bytes.

use std::fmt;

/// What was expected in a message, and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) expected: &'static str,
    pub(crate) found: String,
}

impl Malformed {
    pub(crate) fn new(expected: &'static str, found: impl fmt::Display) -> Self {
        Self {
            expected,
            found: found.to_string(),
        }
    }
}

/// A part of a message that is too large to send, and its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuch {
    pub(crate) what: &'static str,
    pub(crate) most: usize,
}

/// Writes into a buffer, and never past its end.
pub(crate) struct Writer<'b> {
    bytes: &'b mut [u8],
    length: usize,
}

impl<'b> Writer<'b> {
    pub(crate) const fn new(bytes: &'b mut [u8]) -> Self {
        Self { bytes, length: 0 }
    }

    /// Bytes written.
    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), TooMuch> {
        let most = self.bytes.len();
        let end = self.length + bytes.len();
        let Some(place) = self.bytes.get_mut(self.length..end) else {
            return Err(TooMuch {
                what: "bytes of a message",
                most,
            });
        };
        place.copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }

    pub(crate) fn u8(&mut self, value: u8) -> Result<(), TooMuch> {
        self.bytes(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> Result<(), TooMuch> {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> Result<(), TooMuch> {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> Result<(), TooMuch> {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn flag(&mut self, value: bool) -> Result<(), TooMuch> {
        self.u8(value.into())
    }

    /// Writes a text of at most `most` bytes. `what` names it in errors.
    pub(crate) fn text(
        &mut self,
        what: &'static str,
        text: &str,
        most: u16,
    ) -> Result<(), TooMuch> {
        let too_long = TooMuch {
            what,
            most: most.into(),
        };
        let length = u16::try_from(text.len()).map_err(|_| too_long)?;
        if length > most {
            return Err(too_long);
        }
        self.u16(length)?;
        self.bytes(text.as_bytes())
    }
}

/// Reads what a [`Writer`] has written, from untrusted bytes.
pub(crate) struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(crate) const fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn bytes(
        &mut self,
        what: &'static str,
        count: usize,
    ) -> Result<&'b [u8], Malformed> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else {
            let left = self.rest.len();
            let found = format!("a message that ends {left} bytes into {count}");
            return Err(Malformed::new(what, found));
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(what, N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        self.array(what).map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// An array of `N` bytes.
    pub(crate) fn fixed<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], Malformed> {
        self.array(what)
    }

    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, Malformed> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::new(
                what,
                format_args!("neither 0 nor 1: {other}"),
            )),
        }
    }

    /// Reads a text of at most `most` bytes without control characters.
    pub(crate) fn text(&mut self, what: &'static str, most: u16) -> Result<String, Malformed> {
        let length = self.u16(what)?;
        if length > most {
            let found = format_args!("{length} bytes, and {most} are the most");
            return Err(Malformed::new(what, found));
        }
        let bytes = self.bytes(what, length.into())?;
        let text = std::str::from_utf8(bytes)
            .map_err(|error| Malformed::new(what, format_args!("no text: {error}")))?;
        match text.chars().find(|character| character.is_control()) {
            None => Ok(text.to_owned()),
            Some(control) => {
                let found = format_args!("the control character {control:?}");
                Err(Malformed::new(what, found))
            }
        }
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Malformed::new(
                "the end of the message",
                format_args!("{left} bytes more"),
            )),
        }
    }
}

/// The start of `text` in at most `most` bytes. Control characters become spaces.
///
/// For labels and reasons, which are meant for people.
pub(crate) fn shortened(text: &str, most: u16) -> String {
    let mut short = String::new();
    for character in text.chars() {
        let character = if character.is_control() {
            ' '
        } else {
            character
        };
        if short.len() + character.len_utf8() > most.into() {
            break;
        }
        short.push(character);
    }
    short
}

/// A digest of bytes: 64-bit FNV-1a. It detects accidental differences, not forged ones.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
