//! JSON text to template values, as Python's json.loads gives them: key order kept, integers of any size exact, floats as f64.
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{DynObject, Object, ObjectRepr};
use minijinja::Value;

use crate::python::float_repr;

const MAX_DEPTH: usize = 128;

/// A number whose text as Python's str() the engine's own number types do not give: an integer beyond 128 bits, a float that Python
/// writes with an exponent. Prints and serialises; does not compute.
#[derive(Debug)]
pub struct NumberText {
    pub text: String,
    pub integer: bool,
    value: f64,
}

impl Object for NumberText {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let other = other.downcast_ref::<NumberText>()?;
        Some(self.value.total_cmp(&other.value).then_with(|| self.text.cmp(&other.text)))
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One JSON value with nothing after it; the message says what is wrong and at which byte.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let value = parser.value()?;
    parser.space();
    if parser.at != text.len() {
        return Err(parser.wrong("the end"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn wrong(&self, expected: &str) -> String {
        format!("expected {expected} at byte {}", self.at)
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += there as usize;
        there
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, String> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.wrong("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self) -> Result<Value, String> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => Ok(Value::from(self.string()?)),
            Some(b't') => self.word("true", Value::from(true)),
            Some(b'f') => self.word("false", Value::from(false)),
            Some(b'n') => self.word("null", Value::from(())),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.wrong("a value")),
        }
    }

    fn nested(&mut self, body: fn(&mut Self) -> Result<Value, String>) -> Result<Value, String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels at byte {}", self.at));
        }
        self.depth += 1;
        self.at += 1;
        let value = body(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, String> {
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        self.space();
        if !self.take(b'}') {
            loop {
                self.space();
                if self.peek() != Some(b'"') {
                    return Err(self.wrong("a key"));
                }
                let key = Value::from(self.string()?);
                self.space();
                if !self.take(b':') {
                    return Err(self.wrong("':'"));
                }
                pairs.push((key, self.value()?));
                self.space();
                if self.take(b'}') {
                    break;
                }
                if !self.take(b',') {
                    return Err(self.wrong("',' or '}'"));
                }
            }
        }
        Ok(Value::from_pairs(pairs))
    }

    fn array(&mut self) -> Result<Value, String> {
        let mut items: Vec<Value> = Vec::new();
        self.space();
        if !self.take(b']') {
            loop {
                items.push(self.value()?);
                self.space();
                if self.take(b']') {
                    break;
                }
                if !self.take(b',') {
                    return Err(self.wrong("',' or ']'"));
                }
            }
        }
        Ok(Value::from(items))
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.bytes().position(|b| b == b'"' || b == b'\\' || b < 0x20).ok_or("a string does not end")?;
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                _ => return Err(self.wrong("no control character in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let escaped = self.peek();
        self.at += 1;
        Ok(match escaped {
            Some(c @ (b'"' | b'\\' | b'/')) => c as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let mut code = self.hex()?;
                if (0xD800..0xDC00).contains(&code) && self.take(b'\\') && self.take(b'u') {
                    let low = self.hex()?;
                    if (0xDC00..0xE000).contains(&low) {
                        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                    }
                }
                char::from_u32(code).ok_or_else(|| self.wrong("a whole surrogate pair before this"))?
            }
            _ => return Err(self.wrong("an escape")),
        })
    }

    fn hex(&mut self) -> Result<u32, String> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u32::from_str_radix(d, 16).ok());
        self.at += 4;
        code.ok_or_else(|| format!("expected four hexadecimal digits at byte {}", self.at - 4))
    }

    fn digits(&mut self) -> Result<(), String> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.wrong("a digit"));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        let value: f64 = text.parse().map_err(|_| format!("expected a number at byte {start}"))?;
        if integer {
            return Ok(integer_value(text, value));
        }
        if !value.is_finite() {
            return Err(format!("the number at byte {start} is out of range"));
        }
        Ok(float_value(value))
    }
}

fn integer_value(text: &str, value: f64) -> Value {
    if let Ok(small) = text.parse::<i64>() {
        Value::from(small)
    } else if let Ok(large) = text.parse::<i128>() {
        Value::from(large)
    } else {
        Value::from_object(NumberText { text: text.to_string(), integer: true, value })
    }
}

fn float_value(value: f64) -> Value {
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-4..1e16).contains(&magnitude) {
        Value::from(value)
    } else {
        Value::from_object(NumberText { text: float_repr(value), integer: false, value })
    }
}
