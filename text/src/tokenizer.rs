//! tokenizer.json to a tokenizer of the `tokenizers` crate: read once, every number and name checked before it sizes anything.
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{AddedToken, Model, Normalizer, OffsetReferential, OffsetType, PreTokenizer, TokenizerBuilder, TokenizerImpl};

use crate::abi::{Code, Failure};
use crate::spellings::{Spellings, MARK};
use crate::token_bytes::{Decoding, TokenTable};

/// Ids index tables, so they are bounded before any table is made: four times the largest published vocabulary and more.
const MAX_ID: u64 = (1 << 24) - 1;
/// Normalizer, pre-tokenizer, post-processor and decoder are a few kilobytes in every published file.
const MAX_SECTION_BYTES: usize = 4 << 20;
const MAX_ADDED_TOKEN_BYTES: usize = 512;
const MAX_ADDED_BYTES: usize = 4 << 20;
const MAX_REGEX_BYTES: usize = 8192;
/// A counted repeat is unrolled when the expression is compiled, a nested one multiplies.
const MAX_REGEX_REPEATS: u64 = 1000;

type Inner = TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

pub struct Tokenizer {
    inner: Inner,
    pub table: TokenTable,
    /// Special tokens of the configuration: "eos_token" and its like.
    pub named: BTreeMap<String, String>,
    spellings: Spellings,
}

#[derive(Deserialize)]
struct File<'a> {
    version: Option<String>,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(borrow, default)]
    normalizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    post_processor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    decoder: Option<&'a RawValue>,
    #[serde(borrow)]
    model: &'a RawValue,
}

#[derive(Deserialize)]
struct Added {
    id: u64,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct BpeFile {
    vocab: Vocab,
    merges: Merges,
    dropout: Option<f64>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
}

struct Vocab(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Vocab;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of token to id")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Vocab, M::Error> {
                let mut vocab = Vec::new();
                while let Some((token, id)) = map.next_entry::<String, u64>()? {
                    if id > MAX_ID {
                        return Err(serde::de::Error::custom(format!(
                            "id {id} of token {token:?} is above the largest supported, {MAX_ID}"
                        )));
                    }
                    vocab.push((token, id as u32));
                }
                Ok(Vocab(vocab))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

struct Merges(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Merge(String, String);
        impl<'de> Deserialize<'de> for Merge {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Read;
                impl<'de> Visitor<'de> for Read {
                    type Value = Merge;
                    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                        f.write_str("a merge: \"a b\" or [a, b]")
                    }
                    fn visit_str<E: serde::de::Error>(self, line: &str) -> Result<Merge, E> {
                        match line.split_once(' ') {
                            Some((a, b)) if !b.contains(' ') => Ok(Merge(a.into(), b.into())),
                            _ => Err(E::custom(format!("merge {line:?} is not two tokens"))),
                        }
                    }
                    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Merge, S::Error> {
                        match (seq.next_element()?, seq.next_element()?, seq.next_element::<serde::de::IgnoredAny>()?) {
                            (Some(a), Some(b), None) => Ok(Merge(a, b)),
                            _ => Err(serde::de::Error::custom("a merge is not two tokens")),
                        }
                    }
                }
                deserializer.deserialize_any(Read)
            }
        }
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Merges;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of merges")
            }
            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Merges, S::Error> {
                let mut merges = Vec::new();
                while let Some(Merge(a, b)) = seq.next_element()? {
                    if !a.starts_with("#version") {
                        merges.push((a, b));
                    }
                }
                Ok(Merges(merges))
            }
        }
        deserializer.deserialize_seq(Read)
    }
}

fn corrupt(message: impl Into<String>) -> Failure {
    Failure::new(Code::Corrupt, message)
}
fn unsupported(message: impl Into<String>) -> Failure {
    Failure::new(Code::Unsupported, message)
}

impl Tokenizer {
    /// Messages begin with the name of the file they are about.
    pub fn new(json: &[u8], config: &[u8]) -> Result<Tokenizer, Failure> {
        let named = named_tokens(config)?;
        Tokenizer::read(json, named).map_err(|e| Failure::new(e.code, format!("tokenizer.json: {}", e.message)))
    }

    fn read(json: &[u8], named: BTreeMap<String, String>) -> Result<Tokenizer, Failure> {
        let file: File = serde_json::from_slice(json).map_err(|e| corrupt(e.to_string()))?;
        if let Some(version) = file.version.as_deref().filter(|v| *v != "1.0") {
            return Err(unsupported(format!("version {version:?} is not supported (1.0 is)")));
        }
        let normalizer: Option<NormalizerWrapper> = section("normalizer", file.normalizer)?;
        let pre_tokenizer: Option<PreTokenizerWrapper> = section("pre_tokenizer", file.pre_tokenizer)?;
        let post_processor: Option<PostProcessorWrapper> = section("post_processor", file.post_processor)?;
        let byte_level = [file.normalizer, file.pre_tokenizer].iter().flatten().any(|s| s.get().contains("\"ByteLevel\""));
        let model = read_model(file.model, byte_level)?;
        check_added(&file.added_tokens, &model.vocab.0)?;
        let decoding = Decoding::new(&section("decoder", file.decoder)?.unwrap_or(serde_json::Value::Null))?;

        let largest = check_span(&model.vocab.0, &file.added_tokens)?;
        let mut tokens: Vec<_> = model.vocab.0.iter().map(|(token, id)| (*id, decoding.bytes(token), false)).collect();
        tokens.extend(file.added_tokens.iter().map(|a| (a.id as u32, a.content.as_bytes().to_vec(), a.special)));
        let table = TokenTable::new(tokens, decoding.strips_leading_space());

        let mut inner: Inner = TokenizerBuilder::new()
            .with_model(build_model(model)?)
            .with_normalizer(normalizer)
            .with_pre_tokenizer(pre_tokenizer)
            .with_post_processor(post_processor)
            .build()
            .map_err(|e| corrupt(e.to_string()))?;
        let added: Vec<AddedToken> = file.added_tokens.iter().map(added_token).collect();
        inner.add_tokens(added.iter().cloned()).map_err(|e| corrupt(format!("added_tokens: {e}")))?;
        check_ids(&inner, &file.added_tokens, largest)?;
        let spellings = Spellings::new(&added, inner.get_normalizer())?;
        Ok(Tokenizer { inner, table, named, spellings })
    }

    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<i32>, Failure> {
        let encoding = self.inner.encode_fast(text, add_special_tokens).map_err(cannot_encode)?;
        Ok(encoding.get_ids().iter().map(|id| *id as i32).collect())
    }

    /// The crate's own steps, with the marks taken out between the cut at added tokens and the pre-tokenizer: a spelling that holds a
    /// mark is not that spelling, so the crate does not take it for the token.
    pub fn encode_chat(&self, text: &str) -> Result<Vec<i32>, Failure> {
        if !text.contains(MARK) {
            return self.encode(text, false);
        }
        let added = self.inner.get_added_vocabulary();
        let normalizer = self.inner.get_normalizer();
        // Added tokens that match normalised text need the normalizer in the cut; otherwise it sees the text without marks.
        let (early, late) = if self.spellings.match_normalized() { (normalizer, None) } else { (None, normalizer) };
        let mut pieces = added.extract_and_normalize(early, text);
        pieces
            .normalize(|piece| {
                if piece.get().contains(MARK) {
                    piece.filter(|c| c != MARK);
                }
                late.map_or(Ok(()), |n| n.normalize(piece))
            })
            .map_err(cannot_encode)?;
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(cannot_encode)?;
        }
        self.inner.get_model().tokenize_in_pretokenized(&mut pieces, None).map_err(cannot_encode)?;
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::None);
        Ok(splits.iter().flat_map(|(_, _, tokens)| tokens.iter().flatten()).map(|token| token.id as i32).collect())
    }

    pub fn mark_plain(&self, text: &str, keep_think: bool) -> Result<String, Failure> {
        self.spellings.mark(text, keep_think, self.inner.get_normalizer())
    }
}

fn cannot_encode(error: tokenizers::Error) -> Failure {
    Failure::new(Code::Invalid, format!("the text cannot be tokenized: {error}"))
}

fn added_token(added: &Added) -> AddedToken {
    AddedToken::from(added.content.clone(), added.special)
        .single_word(added.single_word)
        .lstrip(added.lstrip)
        .rstrip(added.rstrip)
        .normalized(added.normalized)
}

/// The largest id. Tables have an entry for every id up to it, so a few tokens must not claim a large range.
fn check_span(vocab: &[(String, u32)], added: &[Added]) -> Result<u32, Failure> {
    let largest = vocab.iter().map(|(_, id)| *id).chain(added.iter().map(|a| a.id as u32)).max().unwrap_or(0);
    let tokens = vocab.len() + added.len();
    if largest as usize >= 2 * tokens + 1024 {
        return Err(corrupt(format!("ids reach {largest}, but there are only {tokens} tokens")));
    }
    Ok(largest)
}

/// A small part of the file; its regular expressions are checked before the crate compiles them.
fn section<T: serde::de::DeserializeOwned>(name: &str, raw: Option<&RawValue>) -> Result<Option<T>, Failure> {
    let Some(raw) = raw else { return Ok(None) };
    if raw.get().len() > MAX_SECTION_BYTES {
        return Err(unsupported(format!("{name} has {} bytes, more than the {MAX_SECTION_BYTES} supported", raw.get().len())));
    }
    let value: serde_json::Value = serde_json::from_str(raw.get()).map_err(|e| corrupt(format!("{name}: {e}")))?;
    check_regexes(name, &value)?;
    // The crate panics on some broken parts (a character map that is none).
    let part = catch_unwind(|| serde_json::from_value(value)).map_err(|_| corrupt(format!("{name} is broken")))?;
    part.map(Some).map_err(|e| corrupt(format!("{name}: {e}")))
}

fn check_regexes(name: &str, value: &serde_json::Value) -> Result<(), Failure> {
    match value {
        serde_json::Value::Array(items) => items.iter().try_for_each(|item| check_regexes(name, item)),
        serde_json::Value::Object(fields) => fields.iter().try_for_each(|(key, item)| match item {
            serde_json::Value::String(regex) if key == "Regex" => check_regex(name, regex),
            _ => check_regexes(name, item),
        }),
        _ => Ok(()),
    }
}

fn check_regex(name: &str, regex: &str) -> Result<(), Failure> {
    if regex.len() > MAX_REGEX_BYTES {
        return Err(unsupported(format!(
            "{name}: a regular expression of {} bytes is longer than the {MAX_REGEX_BYTES} supported",
            regex.len()
        )));
    }
    let mut repeats = 1u64;
    for part in regex.split('{').skip(1) {
        let counts = part.split('}').next().unwrap_or("");
        if counts.bytes().all(|b| b.is_ascii_digit() || b == b',') {
            let largest = counts.split(',').filter(|c| !c.is_empty()).map(|c| c.parse().unwrap_or(u64::MAX)).max();
            repeats = repeats.saturating_mul(largest.unwrap_or(1).max(1));
        }
    }
    if repeats > MAX_REGEX_REPEATS {
        return Err(unsupported(format!(
            "{name}: a regular expression repeats up to {repeats} times, more than the {MAX_REGEX_REPEATS} supported"
        )));
    }
    Ok(())
}

fn read_model(raw: &RawValue, byte_level: bool) -> Result<BpeFile, Failure> {
    let kind: Kind = serde_json::from_str(raw.get()).map_err(|e| corrupt(format!("model: {e}")))?;
    if let Some(kind) = kind.kind.filter(|k| k != "BPE") {
        return Err(unsupported(format!("model type {kind:?} is not supported (BPE is)")));
    }
    let model: BpeFile = serde_json::from_str(raw.get()).map_err(|e| corrupt(format!("model: {e}")))?;
    if model.dropout.is_some_and(|p| p != 0.0) {
        return Err(unsupported("model.dropout makes encoding random, which is not supported"));
    }
    if model.continuing_subword_prefix.as_ref().is_some_and(|p| !p.is_empty())
        || model.end_of_word_suffix.as_ref().is_some_and(|s| !s.is_empty())
    {
        return Err(unsupported("model.continuing_subword_prefix and model.end_of_word_suffix are not supported"));
    }
    let mut owner: HashMap<u32, &str> = HashMap::with_capacity(model.vocab.0.len());
    for (token, id) in &model.vocab.0 {
        if let Some(other) = owner.insert(*id, token) {
            return Err(corrupt(format!("model.vocab: tokens {other:?} and {token:?} have the same id {id}")));
        }
    }
    // The crate copies a merge's parts into a buffer as long as the longest token.
    let longest = model.vocab.0.iter().map(|(token, _)| token.len()).max().unwrap_or(0);
    if let Some((a, b)) = model.merges.0.iter().find(|(a, b)| a.len() + b.len() > longest) {
        return Err(corrupt(format!("model.merges: {a:?} and {b:?} make a token that is not in the vocabulary")));
    }
    check_no_text_is_lost(&model, byte_level)?;
    Ok(model)
}

/// The crate drops a character that has neither token nor fallback; a tokenizer must not lose a prompt's text.
fn check_no_text_is_lost(model: &BpeFile, byte_level: bool) -> Result<(), Failure> {
    let tokens: HashSet<&str> = model.vocab.0.iter().map(|(token, _)| token.as_str()).collect();
    if let Some(unk) = &model.unk_token {
        return if tokens.contains(unk.as_str()) {
            Ok(())
        } else {
            Err(corrupt(format!("model.unk_token {unk:?} is not in the vocabulary")))
        };
    }
    for byte in (0u8..=0xF4).filter(|b| !matches!(b, 0xC0 | 0xC1)) {
        let (spelling, kind) = if byte_level {
            (crate::token_bytes::byte_level_char(byte).to_string(), "pre_tokenizer")
        } else if model.byte_fallback == Some(true) {
            (format!("<0x{byte:02X}>"), "byte_fallback")
        } else {
            return Err(unsupported("the model has no unk_token, no byte_fallback and no ByteLevel pre-tokenizer: it would drop text"));
        };
        if !tokens.contains(spelling.as_str()) {
            return Err(corrupt(format!("model.vocab has no token {spelling:?} for byte {byte} of the {kind}: text would be dropped")));
        }
    }
    Ok(())
}

fn build_model(file: BpeFile) -> Result<BPE, Failure> {
    let vocab: tokenizers::models::bpe::Vocab = file.vocab.0.into_iter().collect();
    let mut builder = BPE::builder()
        .vocab_and_merges(vocab, file.merges.0)
        .fuse_unk(file.fuse_unk.unwrap_or(false))
        .byte_fallback(file.byte_fallback.unwrap_or(false))
        .ignore_merges(file.ignore_merges.unwrap_or(false));
    if let Some(unk) = file.unk_token {
        builder = builder.unk_token(unk);
    }
    builder.build().map_err(|e| corrupt(format!("model: {e}")))
}

fn check_added(added: &[Added], vocab: &[(String, u32)]) -> Result<(), Failure> {
    let mut bytes = 0;
    let mut contents = HashSet::new();
    let mut owner: HashMap<u64, &str> = vocab.iter().map(|(token, id)| (u64::from(*id), token.as_str())).collect();
    for (place, token) in added.iter().enumerate() {
        bytes += token.content.len();
        if token.content.is_empty() {
            return Err(corrupt(format!("added_tokens[{place}] (id {}) is empty", token.id)));
        }
        if token.id > MAX_ID {
            return Err(corrupt(format!("added_tokens[{place}]: id {} is above the largest supported, {MAX_ID}", token.id)));
        }
        if token.content.len() > MAX_ADDED_TOKEN_BYTES || bytes > MAX_ADDED_BYTES {
            return Err(unsupported(format!(
                "added_tokens[{place}] (id {}) has {} bytes; {MAX_ADDED_TOKEN_BYTES} a token and {MAX_ADDED_BYTES} in all are supported",
                token.id,
                token.content.len()
            )));
        }
        if let Some(other) = owner.insert(token.id, &token.content).filter(|other| *other != token.content) {
            return Err(corrupt(format!("added_tokens[{place}]: {other:?} and {:?} have the same id {}", token.content, token.id)));
        }
        if !contents.insert(token.content.as_str()) {
            return Err(corrupt(format!("added_tokens[{place}]: {:?} is listed twice", token.content)));
        }
    }
    Ok(())
}

/// The crate numbers added tokens itself; the model was trained with the file's ids.
fn check_ids(inner: &Inner, added: &[Added], largest: u32) -> Result<(), Failure> {
    for token in added {
        let id = inner.token_to_id(&token.content);
        if id != Some(token.id as u32) {
            let is = id.map_or("none".to_string(), |id| id.to_string());
            return Err(corrupt(format!(
                "added token {:?} has id {} in the file, but its place after a vocabulary of {} makes it {is} (no holes are supported)",
                token.content,
                token.id,
                inner.get_model().get_vocab_size()
            )));
        }
    }
    // The crate panics on a template whose special token it does not list.
    let frame = catch_unwind(AssertUnwindSafe(|| inner.encode_fast("", true)));
    let frame = frame
        .map_err(|_| corrupt("post_processor uses a special token that it does not define"))?
        .map_err(|e| corrupt(format!("post_processor: {e}")))?;
    if let Some(id) = frame.get_ids().iter().find(|id| **id > largest) {
        return Err(corrupt(format!("post_processor adds id {id}, above the largest id of the vocabulary, {largest}")));
    }
    Ok(())
}

/// Every `NAME_token` of tokenizer_config.json: a string, or an added token's object.
fn named_tokens(config: &[u8]) -> Result<BTreeMap<String, String>, Failure> {
    let mut named = BTreeMap::new();
    if config.is_empty() {
        return Ok(named);
    }
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(config).map_err(|e| corrupt(format!("tokenizer_config.json: {e}")))?;
    for (key, value) in fields.iter().filter(|(key, _)| key.ends_with("_token")) {
        let token = value.as_str().or_else(|| value.get("content").and_then(|c| c.as_str()));
        match token {
            Some(token) => drop(named.insert(key.clone(), token.to_string())),
            None if value.is_null() || value.is_boolean() => {}
            None => return Err(corrupt(format!("tokenizer_config.json: {key} is neither a string nor a token"))),
        }
    }
    Ok(named)
}
