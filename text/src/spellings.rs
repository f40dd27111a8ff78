//! Spellings of added tokens in message text. A mark (U+FDD0, a noncharacter) after the first character of each keeps the encoder from
//! taking it for the token.
use std::collections::{BTreeSet, HashMap};

use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{AddedToken, NormalizedString, Normalizer};

use crate::abi::{Code, Failure};

pub const MARK: char = '\u{FDD0}';

/// Every spelling as a path of bytes. Starts are few, so a byte that begins none is passed at once.
#[derive(Default)]
struct Trie {
    next: HashMap<(u32, u8), u32>,
    ends: Vec<bool>,
    starts: Vec<bool>,
}

impl Trie {
    fn insert(&mut self, spelling: &str) {
        self.ends.resize(self.ends.len().max(1), false);
        self.starts.resize(256, false);
        self.starts[spelling.as_bytes()[0] as usize] = true;
        let mut node = 0;
        for byte in spelling.bytes() {
            let fresh = self.ends.len() as u32;
            node = *self.next.entry((node, byte)).or_insert(fresh);
            if node == fresh {
                self.ends.push(false);
            }
        }
        self.ends[node as usize] = true;
    }

    /// Where a spelling begins, or at the end of the text the beginning of one.
    fn find<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        let bytes = text.as_bytes();
        let begins = move |start: usize| {
            let mut node = 0;
            for byte in &bytes[start..] {
                match self.next.get(&(node, *byte)) {
                    Some(next) if self.ends[*next as usize] => return true,
                    Some(next) => node = *next,
                    None => return false,
                }
            }
            true
        };
        (0..bytes.len()).filter(move |i| self.starts.get(bytes[*i] as usize) == Some(&true) && begins(*i))
    }
}

/// What to look for in the text and, for tokens matched after the normalizer, in its normalised form.
#[derive(Default)]
struct Patterns {
    plain: Trie,
    normalized: Trie,
}

pub struct Spellings {
    all: Patterns,
    but_think: Patterns,
    match_normalized: bool,
}

impl Spellings {
    pub fn new(added: &[AddedToken], normalizer: Option<&NormalizerWrapper>) -> Result<Spellings, Failure> {
        let mut spellings = Spellings { all: Patterns::default(), but_think: Patterns::default(), match_normalized: false };
        for token in added {
            let normalizer = normalizer.filter(|_| token.normalized);
            spellings.match_normalized |= normalizer.is_some();
            // Runs of spaces are added tokens in some vocabularies: text, not control. One character leaves no room for a mark.
            if token.content.trim().is_empty() || token.content.chars().nth(1).is_none() {
                continue;
            }
            let think = token.content == "<think>" || token.content == "</think>";
            for patterns in std::iter::once(&mut spellings.all).chain((!think).then_some(&mut spellings.but_think)) {
                patterns.plain.insert(&token.content);
                if let Some(normalizer) = normalizer {
                    let normal = normalize(normalizer, &token.content)?;
                    if !normal.get().is_empty() {
                        patterns.normalized.insert(normal.get());
                    }
                }
            }
        }
        if let Some(normalizer) = normalizer.filter(|_| spellings.match_normalized) {
            if !normalize(normalizer, "a\u{FDD0}b")?.get().contains(MARK) {
                return Err(Failure::new(
                    Code::Unsupported,
                    "normalizer: one that removes U+FDD0 is not supported together with normalized added tokens",
                ));
            }
        }
        Ok(spellings)
    }

    /// Whether an added token is matched after the normalizer.
    pub fn match_normalized(&self) -> bool {
        self.match_normalized
    }

    pub fn mark(&self, text: &str, keep_think: bool, normalizer: Option<&NormalizerWrapper>) -> Result<String, Failure> {
        let patterns = if keep_think { &self.but_think } else { &self.all };
        let cleaned;
        let text = if text.contains(MARK) {
            cleaned = text.replace(MARK, "");
            cleaned.as_str()
        } else {
            text
        };
        let char_end = |start: usize| start + text[start..].chars().next().map_or(0, char::len_utf8);
        let mut places: BTreeSet<usize> = patterns.plain.find(text).map(char_end).collect();
        if let Some(normalizer) = normalizer.filter(|_| self.match_normalized) {
            let normal = normalize(normalizer, text)?;
            for start in patterns.normalized.find(normal.get()) {
                let end = start + normal.get()[start..].chars().next().map_or(0, char::len_utf8);
                if let Some(original) = normal.convert_offsets(tokenizers::tokenizer::normalizer::Range::Normalized(start..end)) {
                    places.insert(original.end);
                }
            }
        }
        let mut marked = String::with_capacity(text.len() + places.len() * MARK.len_utf8());
        let mut from = 0;
        for place in places {
            marked.push_str(&text[from..place]);
            marked.push(MARK);
            from = place;
        }
        marked.push_str(&text[from..]);
        Ok(marked)
    }
}

fn normalize(normalizer: &NormalizerWrapper, text: &str) -> Result<NormalizedString, Failure> {
    let mut normal = NormalizedString::from(text);
    normalizer.normalize(&mut normal).map_err(|e| Failure::new(Code::Corrupt, format!("normalizer: {e}")))?;
    Ok(normal)
}
