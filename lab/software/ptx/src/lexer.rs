//! The words of a text.

use crate::{ParseError, Refusal};

/// The most characters of the text that an error repeats.
const QUOTE: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word<'t> {
    /// A name, `%` included.
    Name(&'t str),
    /// What follows a dot: a directive, a modifier, a type or a dimension.
    Dot(&'t str),
    Integer(u64),
    Text(&'t str),
    Sign(char),
    End,
}

/// The words of a text, and which is next.
#[derive(Debug)]
pub(crate) struct Words<'t> {
    list: Vec<(u32, Word<'t>)>,
    at: usize,
    last_line: u32,
}

impl<'t> Words<'t> {
    pub(crate) fn read(text: &'t str) -> Result<Self, ParseError> {
        let mut reader = Reader {
            text,
            at: 0,
            line: 1,
        };
        let mut list = Vec::new();
        while let Some(word) = reader.word()? {
            list.push((reader.line, word));
        }
        Ok(Self {
            list,
            at: 0,
            last_line: reader.line,
        })
    }

    /// The line of the next word.
    pub(crate) fn line(&self) -> u32 {
        self.list
            .get(self.at)
            .map_or(self.last_line, |&(line, _)| line)
    }

    pub(crate) fn peek(&self) -> Word<'t> {
        self.list.get(self.at).map_or(Word::End, |&(_, word)| word)
    }

    /// The word behind the next word.
    pub(crate) fn peek_second(&self) -> Word<'t> {
        self.list
            .get(self.at + 1)
            .map_or(Word::End, |&(_, word)| word)
    }

    pub(crate) fn next(&mut self) -> Word<'t> {
        let word = self.peek();
        if word != Word::End {
            self.at += 1;
        }
        word
    }

    pub(crate) fn accept(&mut self, sign: char) -> bool {
        let found = self.peek() == Word::Sign(sign);
        if found {
            self.at += 1;
        }
        found
    }

    pub(crate) fn accept_dot(&mut self, name: &str) -> bool {
        let found = self.peek() == Word::Dot(name);
        if found {
            self.at += 1;
        }
        found
    }

    pub(crate) fn expect(&mut self, sign: char, expected: &'static str) -> Result<(), ParseError> {
        if self.accept(sign) {
            Ok(())
        } else {
            Err(self.unexpected(expected))
        }
    }

    pub(crate) fn name(&mut self, expected: &'static str) -> Result<&'t str, ParseError> {
        // These begin a name and are none alone.
        if let Word::Name(name) = self.peek()
            && !matches!(name, "%" | "_" | "$")
        {
            self.at += 1;
            Ok(name)
        } else {
            Err(self.unexpected(expected))
        }
    }

    pub(crate) fn integer(&mut self, expected: &'static str) -> Result<u64, ParseError> {
        if let Word::Integer(value) = self.peek() {
            self.at += 1;
            Ok(value)
        } else {
            Err(self.unexpected(expected))
        }
    }

    /// Skips the words that are left on this line.
    pub(crate) fn skip_line(&mut self) {
        let line = self.line();
        while self.peek() != Word::End && self.line() == line {
            self.at += 1;
        }
    }

    pub(crate) fn error(&self, refusal: Refusal) -> ParseError {
        ParseError {
            line: self.line(),
            refusal,
        }
    }

    /// The next word is not what PTX has in this place.
    pub(crate) fn unexpected(&self, expected: &'static str) -> ParseError {
        let found = match self.peek() {
            Word::Name(name) => quote("", name),
            Word::Dot(name) => quote(".", name),
            Word::Integer(value) => value.to_string(),
            Word::Text(text) => quote("\"", text),
            Word::Sign(sign) => quote("", sign.encode_utf8(&mut [0; 4])),
            Word::End => "the end of the text".to_owned(),
        };
        self.error(Refusal::Syntax { expected, found })
    }
}

fn quote(before: &str, text: &str) -> String {
    let mut quoted = format!("`{before}");
    quoted.extend(text.chars().take(QUOTE));
    quoted.push('`');
    quoted
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: u32,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Takes the characters for which `belongs` is true.
    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.advance(end)
    }

    /// Takes so many bytes.
    fn advance(&mut self, bytes: usize) -> &'t str {
        let taken = self.rest().get(..bytes).unwrap_or_default();
        let lines = taken.bytes().filter(|&byte| byte == b'\n').count();
        self.line = self
            .line
            .saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.at += taken.len();
        taken
    }

    fn syntax(&self, expected: &'static str, found: &str) -> ParseError {
        let found = quote("", found);
        ParseError {
            line: self.line,
            refusal: Refusal::Syntax { expected, found },
        }
    }

    /// `0f` and `0d` begin a floating-point number.
    fn no_integer(&self, digits: &str) -> ParseError {
        if let [b'0', b'f' | b'F' | b'd' | b'D', ..] = digits.as_bytes() {
            let refusal = Refusal::FloatingPoint(digits.chars().take(QUOTE).collect());
            return ParseError {
                line: self.line,
                refusal,
            };
        }
        self.syntax("an integer of 64 bits", digits)
    }

    /// Skips blanks and comments.
    fn skip(&mut self) -> Result<(), ParseError> {
        loop {
            self.take(char::is_whitespace);
            if self.rest().starts_with("//") {
                self.take(|c| c != '\n');
            } else if self.rest().starts_with("/*") {
                let Some(end) = self.rest().get(2..).and_then(|rest| rest.find("*/")) else {
                    return Err(self.syntax("the end of the comment", "/*"));
                };
                self.advance(end + 4);
            } else {
                return Ok(());
            }
        }
    }

    fn word(&mut self) -> Result<Option<Word<'t>>, ParseError> {
        self.skip()?;
        let Some(first) = self.rest().chars().next() else {
            return Ok(None);
        };
        let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
        let word = match first {
            '0'..='9' => {
                let digits = self.take(|c| c.is_ascii_alphanumeric());
                let value = integer(digits);
                Word::Integer(value.ok_or_else(|| self.no_integer(digits))?)
            }
            '.' => {
                self.advance(1);
                let name = self.take(|c| in_name(c) || c == ':');
                if name.is_empty() {
                    return Err(self.syntax("a name behind the dot", "."));
                }
                Word::Dot(name)
            }
            '"' => {
                self.advance(1);
                let text = self.take(|c| c != '"' && c != '\n');
                if !self.rest().starts_with('"') {
                    return Err(self.syntax("the end of the string", text));
                }
                self.advance(1);
                Word::Text(text)
            }
            '%' => {
                let rest = self.rest();
                let behind = rest.get(1..).unwrap_or_default();
                let end = behind.find(|c| !in_name(c)).unwrap_or(behind.len());
                Word::Name(self.advance(1 + end))
            }
            _ if in_name(first) => Word::Name(self.take(in_name)),
            '{' | '}' | '(' | ')' | '[' | ']' | '<' | '>' | ',' | ';' | ':' | '@' | '!' | '+'
            | '-' | '|' | '=' => {
                self.advance(1);
                Word::Sign(first)
            }
            _ => return Err(self.syntax("PTX", first.encode_utf8(&mut [0; 4]))),
        };
        Ok(Some(word))
    }
}

/// The value of an integer literal: decimal, `0x`, `0b` or octal, with or without `U`.
fn integer(digits: &str) -> Option<u64> {
    let digits = digits.strip_suffix('U').unwrap_or(digits);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (digits.get(2..)?, 16),
        [b'0', b'b' | b'B', ..] => (digits.get(2..)?, 2),
        [b'0', _, ..] => (digits.get(1..)?, 8),
        _ => (digits, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}
