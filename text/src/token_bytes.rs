//! What bytes a token adds to a running text, for every id: the decoder of tokenizer.json as a table.
use std::sync::LazyLock;

use serde_json::Value;

use crate::abi::{Code, Failure};

/// The decoders whose work is one token at a time. Others are refused by name.
pub enum Decoding {
    /// Characters stand for bytes (GPT-2's table).
    ByteLevel,
    /// SentencePiece: replacements inside the token, `<0x0A>` is a byte, one leading space of the whole text goes.
    Pieces { replace: Vec<(String, String)>, byte_fallback: bool, strip: bool },
}

/// The character that stands for a byte: printable Latin-1 for itself, the other 68 from U+0100 on in order.
pub fn byte_level_char(byte: u8) -> char {
    let printable = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let b = byte as u32;
    if printable(b) {
        byte as char
    } else {
        let rank = (0..b).filter(|other| !printable(*other)).count() as u32;
        char::from_u32(256 + rank).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

fn byte_of_char(c: char) -> Option<u8> {
    static TABLE: LazyLock<[Option<u8>; 324]> = LazyLock::new(|| {
        let mut table = [None; 324];
        for byte in 0..=255u8 {
            table[byte_level_char(byte) as usize] = Some(byte);
        }
        table
    });
    TABLE.get(c as usize).copied().flatten()
}

impl Decoding {
    pub fn new(decoder: &Value) -> Result<Decoding, Failure> {
        let mut steps = Vec::new();
        flatten(decoder, &mut steps);
        let (mut replace, mut byte_fallback, mut strip, mut byte_level) = (Vec::new(), false, false, false);
        for step in steps {
            let text = |key: &str| step.get(key).and_then(Value::as_str);
            match text("type").unwrap_or("none") {
                "ByteLevel" => byte_level = true,
                "ByteFallback" => byte_fallback = true,
                "Fuse" => {}
                "Metaspace" => {
                    replace.push((text("replacement").unwrap_or("\u{2581}").to_string(), " ".to_string()));
                    let never = text("prepend_scheme") == Some("never") || step.get("add_prefix_space") == Some(&Value::Bool(false));
                    strip = !never;
                }
                "Replace" => match (step.get("pattern").and_then(|p| p.get("String")).and_then(Value::as_str), text("content")) {
                    (Some(from), Some(to)) if !from.is_empty() => replace.push((from.to_string(), to.to_string())),
                    _ => return Err(refused("Replace with a regular expression")),
                },
                "Strip" => match (text("content"), step.get("start").and_then(Value::as_u64), step.get("stop").and_then(Value::as_u64)) {
                    (Some(" "), Some(start @ (0 | 1)), Some(0)) => strip = start == 1,
                    _ => return Err(refused("Strip of anything but one leading space")),
                },
                other => return Err(refused(other)),
            }
        }
        match (byte_level, replace.is_empty() && !byte_fallback && !strip) {
            (true, true) => Ok(Decoding::ByteLevel),
            (true, false) => Err(refused("ByteLevel together with others")),
            _ => Ok(Decoding::Pieces { replace, byte_fallback, strip }),
        }
    }

    pub fn strips_leading_space(&self) -> bool {
        matches!(self, Decoding::Pieces { strip: true, .. })
    }

    /// Bytes of a token of the model's vocabulary.
    pub fn bytes(&self, token: &str) -> Vec<u8> {
        match self {
            // A token with a character outside the table is its own text, as in the crate.
            Decoding::ByteLevel => {
                token.chars().map(byte_of_char).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.as_bytes().to_vec())
            }
            Decoding::Pieces { replace, byte_fallback, .. } => {
                let mut text = token.to_string();
                for (from, to) in replace {
                    text = text.replace(from.as_str(), to);
                }
                let byte = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>')).filter(|t| *byte_fallback && t.len() == 2);
                match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                    Some(byte) => vec![byte],
                    None => text.into_bytes(),
                }
            }
        }
    }
}

fn refused(decoder: &str) -> Failure {
    Failure::new(
        Code::Unsupported,
        format!("decoder: {decoder} is not supported (ByteLevel, Metaspace, or Replace, ByteFallback, Fuse and Strip are)"),
    )
}

/// Sequences inside sequences, in order.
fn flatten<'a>(decoder: &'a Value, steps: &mut Vec<&'a Value>) {
    match (decoder.get("type").and_then(Value::as_str), decoder.get("decoders").and_then(Value::as_array)) {
        (Some("Sequence"), Some(decoders)) => decoders.iter().for_each(|d| flatten(d, steps)),
        _ => steps.push(decoder),
    }
}

/// Bytes and flags of ids 0..=largest; an id that no token has adds nothing.
pub struct TokenTable {
    pub offsets: Vec<u32>,
    pub bytes: Vec<u8>,
    pub special: Vec<u8>,
    pub strips_leading_space: bool,
}

impl TokenTable {
    /// `tokens` are (id, bytes, special); of two with one id the later counts.
    pub fn new(mut tokens: Vec<(u32, Vec<u8>, bool)>, strips_leading_space: bool) -> TokenTable {
        tokens.sort_by_key(|(id, _, _)| *id);
        let largest = tokens.last().map_or(0, |(id, _, _)| *id);
        let mut table = TokenTable { offsets: Vec::new(), bytes: Vec::new(), special: vec![0; largest as usize + 1], strips_leading_space };
        for (place, (id, bytes, special)) in tokens.iter().enumerate() {
            if tokens.get(place + 1).is_some_and(|(next, _, _)| next == id) {
                continue;
            }
            table.offsets.resize(*id as usize + 1, table.bytes.len() as u32);
            table.bytes.extend_from_slice(bytes);
            table.special[*id as usize] = *special as u8;
        }
        table.offsets.resize(largest as usize + 2, table.bytes.len() as u32);
        table
    }
}
