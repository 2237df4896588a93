//! KVC1: the corpus file of the index bench. Its layout is in bench/index/kvc1.ts.

use std::fs::File;
use std::io::{BufReader, Read, Result, Seek, SeekFrom};
use std::path::Path;

pub const LOOKUP: u32 = 0;
pub const STORED: u32 = 1;
pub const REMOVED: u32 = 2;
pub const CLEARED: u32 = 3;
const HEADER_BYTES: u64 = 24;

/// One record. `payload` is local hashes (lookup), (local, sequence) pairs (stored)
/// or sequence hashes (removed).
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub kind: u32,
    pub worker: u32,
    pub parent: Option<u64>,
    pub payload: Vec<u64>,
}

impl Record {
    pub fn len(&self) -> usize {
        if self.kind == STORED {
            self.payload.len() / 2
        } else {
            self.payload.len()
        }
    }

    fn bytes(&self) -> u64 {
        24 + if self.kind == STORED { 8 } else { 0 } + 8 * self.payload.len() as u64
    }
}

pub struct Reader {
    input: BufReader<File>,
    pub block_size: u32,
    pub records: u64,
    read: u64,
    offset: u64,
    bytes: Vec<u8>,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Self> {
        let mut input = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut header = [0u8; HEADER_BYTES as usize];
        input.read_exact(&mut header)?;
        assert_eq!(&header[..4], b"KVC1", "not a KVC1 file");
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let records = u64::from_le_bytes(header[16..24].try_into().unwrap());
        Ok(Self {
            input,
            block_size: word(4),
            records,
            read: 0,
            offset: HEADER_BYTES,
            bytes: Vec::new(),
        })
    }

    /// Byte offset of the record that `next` returns.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the record at `offset`, for walking a file backwards.
    pub fn read_at(&mut self, offset: u64, record: &mut Record) -> Result<()> {
        self.input.seek(SeekFrom::Start(offset))?;
        self.offset = offset;
        self.read_record(record)
    }

    /// Fills `record` with the next record; false at the end.
    pub fn next(&mut self, record: &mut Record) -> Result<bool> {
        if self.read == self.records {
            return Ok(false);
        }
        self.read += 1;
        self.read_record(record)?;
        Ok(true)
    }

    fn read_record(&mut self, record: &mut Record) -> Result<()> {
        let mut head = [0u8; 24];
        self.input.read_exact(&mut head)?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        record.kind = word(8);
        record.worker = word(12);
        let n = word(16) as usize;
        let has_parent = word(20) == 1;
        record.parent = None;
        if record.kind == STORED {
            let mut parent = [0u8; 8];
            self.input.read_exact(&mut parent)?;
            record.parent = has_parent.then_some(u64::from_le_bytes(parent));
        }
        let words = if record.kind == STORED { 2 * n } else { n };
        self.bytes.resize(8 * words, 0);
        self.input.read_exact(&mut self.bytes)?;
        record.payload.clear();
        record.payload.extend(
            self.bytes
                .chunks_exact(8)
                .map(|b| u64::from_le_bytes(b.try_into().unwrap())),
        );
        self.offset += record.bytes();
        Ok(())
    }
}
