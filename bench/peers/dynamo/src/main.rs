//! Runs the prefix indexes of dynamo-kv-router on a KVC1 corpus; prints one JSON line per run.
//!
//!   homing-bench-dynamo st    <rt|crtc> <corpus>      one thread: apply everything, then look everything up
//!   homing-bench-dynamo pool  <corpus> <threads>      overload: the schedule issued as fast as possible
//!   homing-bench-dynamo mem   <corpus> <live corpus>  resident memory after the schedule, and emptied again
//!
//! rt is `RadixTree`, crtc `ConcurrentRadixTreeCompressed`; pool and mem use crtc. README.md says what is in
//! the clock.

mod kvc1;

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use dynamo_kv_router::indexer::{ThreadPoolIndexer, WorkerTask};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree, SyncIndexer};
use kvc1::{CLEARED, LOOKUP, REMOVED, Reader, Record, STORED};
use serde_json::{Value, json};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let arg = |at: usize| args.get(at).map(String::as_str).unwrap_or("");
    let line = match arg(1) {
        "st" => match arg(2) {
            "rt" => mixed(load(arg(3))?)?,
            "crtc" => applied(load(arg(3))?)?,
            other => anyhow::bail!("unknown index {other:?}"),
        },
        "pool" => overload(load(arg(2))?, arg(3).parse()?)?,
        "mem" => footprint(arg(2), arg(3))?,
        other => anyhow::bail!("unknown mode {other:?}"),
    };
    println!("{line}");
    Ok(())
}

// ---------------------------------------------------------------- corpus

enum Op {
    Lookup(Vec<LocalBlockHash>),
    Event(RouterEvent),
}

#[derive(Clone, Copy, Default)]
struct Totals {
    lookups: u64,
    lookup_hashes: u64,
    stored: u64,
    removed: u64,
}

impl Totals {
    fn block_ops(&self) -> u64 {
        self.lookup_hashes + self.stored + self.removed
    }
}

struct Corpus {
    ops: Vec<Op>,
    totals: Totals,
    block_size: u32,
}

fn load(path: &str) -> Result<Corpus> {
    let mut reader = Reader::open(Path::new(path))?;
    let mut ops = Vec::with_capacity(reader.records as usize);
    let mut totals = Totals::default();
    let mut record = Record::default();
    while reader.next(&mut record)? {
        let n = record.len() as u64;
        match record.kind {
            LOOKUP => {
                totals.lookups += 1;
                totals.lookup_hashes += n;
                ops.push(Op::Lookup(
                    record
                        .payload
                        .iter()
                        .map(|&hash| LocalBlockHash(hash))
                        .collect(),
                ));
            }
            kind => {
                match kind {
                    STORED => totals.stored += n,
                    _ => totals.removed += n,
                }
                ops.push(Op::Event(to_event(&record, ops.len() as u64)));
            }
        }
    }
    Ok(Corpus {
        ops,
        totals,
        block_size: reader.block_size,
    })
}

fn to_event(record: &Record, event_id: u64) -> RouterEvent {
    let data = match record.kind {
        STORED => KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: record.parent.map(ExternalSequenceBlockHash),
            start_position: None,
            blocks: record
                .payload
                .chunks_exact(2)
                .map(|pair| KvCacheStoredBlockData {
                    block_hash: ExternalSequenceBlockHash(pair[1]),
                    tokens_hash: LocalBlockHash(pair[0]),
                    mm_extra_info: None,
                })
                .collect(),
        }),
        REMOVED => KvCacheEventData::Removed(KvCacheRemoveData {
            block_hashes: record
                .payload
                .iter()
                .map(|&hash| ExternalSequenceBlockHash(hash))
                .collect(),
        }),
        CLEARED => KvCacheEventData::Cleared,
        other => panic!("record kind {other} is no event"),
    };
    RouterEvent::new(
        record.worker as u64,
        KvCacheEvent {
            event_id,
            data,
            dp_rank: 0,
        },
    )
}

/// Removes what `record` stored, last block first.
fn to_removal(record: &Record, event_id: u64) -> RouterEvent {
    let removed = Record {
        kind: REMOVED,
        worker: record.worker,
        parent: None,
        payload: record
            .payload
            .chunks_exact(2)
            .rev()
            .map(|pair| pair[1])
            .collect(),
    };
    to_event(&removed, event_id)
}

fn lookups_of(corpus: &Corpus) -> Vec<Vec<LocalBlockHash>> {
    corpus
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::Lookup(hashes) => Some(hashes.clone()),
            Op::Event(_) => None,
        })
        .collect()
}

// ---------------------------------------------------------------- st

/// The interleaved schedule on one thread, with one clock read around each operation.
fn mixed(corpus: Corpus) -> Result<Value> {
    let lookups = lookups_of(&corpus);
    let mut index = RadixTree::new();
    let totals = corpus.totals;
    let [mut stored_ns, mut removed_ns, mut failed] = [0u64; 3];
    let cpu = thread_cpu();
    let start = Instant::now();
    for op in corpus.ops {
        let from = Instant::now();
        match op {
            Op::Lookup(hashes) => {
                black_box(index.find_matches(hashes, false));
            }
            Op::Event(event) => {
                let stored = matches!(event.event.data, KvCacheEventData::Stored(_));
                failed += index.apply_event(event).is_err() as u64;
                *(if stored {
                    &mut stored_ns
                } else {
                    &mut removed_ns
                }) += from.elapsed().as_nanos() as u64;
            }
        }
    }
    let total = start.elapsed();
    let mixed_cpu = thread_cpu() - cpu;
    let mut line = json!({
        "mixedBlockOpsPerS": rate(totals.block_ops(), total),
        "mixedCpuNs": mixed_cpu as f64 / totals.block_ops() as f64,
        "storedBlocksPerS": totals.stored as f64 * 1e9 / stored_ns as f64,
        "removedBlocksPerS": totals.removed as f64 * 1e9 / removed_ns as f64,
        "failedEvents": failed,
    });
    extend(
        &mut line,
        look_up_all(&lookups, |hashes| index.find_matches(hashes, false)),
    );
    std::mem::forget(index);
    Ok(line)
}

/// All events through `worker()` on this thread from a filled channel, then the lookups.
fn applied(corpus: Corpus) -> Result<Value> {
    let lookups = lookups_of(&corpus);
    let index = ConcurrentRadixTreeCompressed::new();
    let totals = corpus.totals;
    let (sender, receiver) = flume::unbounded();
    let mut events = 0u64;
    for op in corpus.ops {
        if let Op::Event(event) = op {
            events += 1;
            sender.send(WorkerTask::Event(event))?;
        }
    }
    sender.send(WorkerTask::Terminate)?;
    let cpu = thread_cpu();
    let start = Instant::now();
    index.worker(receiver, None)?;
    let total = start.elapsed();
    let cpu = thread_cpu() - cpu;
    let mut line = json!({
        "eventBlocksPerS": rate(totals.stored + totals.removed, total),
        "eventCpuUs": cpu as f64 / 1e3 / events as f64,
    });
    extend(
        &mut line,
        look_up_all(&lookups, |hashes| index.find_matches(&hashes, false)),
    );
    std::mem::forget(index);
    Ok(line)
}

/// Every lookup once for the rate, once with a clock around each call.
fn look_up_all(
    lookups: &[Vec<LocalBlockHash>],
    find: impl Fn(Vec<LocalBlockHash>) -> OverlapScores,
) -> Value {
    let copies = lookups.to_vec();
    let cpu = thread_cpu();
    let start = Instant::now();
    for lookup in copies {
        black_box(find(lookup));
    }
    let total = start.elapsed();
    let cpu = thread_cpu() - cpu;

    let copies = lookups.to_vec();
    let mut samples = Vec::with_capacity(lookups.len());
    let mut scores = 0u64;
    for lookup in copies {
        let from = Instant::now();
        let found = find(lookup);
        samples.push(from.elapsed().as_nanos() as u64);
        scores += found
            .scores
            .values()
            .map(|&score| score as u64)
            .sum::<u64>();
    }
    json!({
        "fullLookupsPerS": rate(lookups.len() as u64, total),
        "fullLookupCpuUs": cpu as f64 / 1e3 / lookups.len() as f64,
        "fullLookupUs": percentiles(samples),
        "fullScoreSum": scores,
    })
}

// ---------------------------------------------------------------- pool

fn overload(corpus: Corpus, threads: usize) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let totals = corpus.totals;
    let pool = ThreadPoolIndexer::new(
        ConcurrentRadixTreeCompressed::new(),
        threads,
        corpus.block_size,
    );
    let mut samples = Vec::with_capacity(totals.lookups as usize);
    let cpu = (process_cpu(), thread_cpu());
    let start = Instant::now();
    for op in corpus.ops {
        match op {
            Op::Lookup(hashes) => {
                let from = Instant::now();
                black_box(pool.backend().find_matches(&hashes, false));
                samples.push(from.elapsed().as_nanos() as u64);
            }
            Op::Event(event) => pool.enqueue_event(event)?,
        }
    }
    let issued = start.elapsed();
    runtime.block_on(pool.flush_and_wait())?;
    let drained = start.elapsed();
    let event_cpu = (process_cpu() - cpu.0) - (thread_cpu() - cpu.1);
    std::mem::forget(pool);
    Ok(json!({
        "blockOpsPerS": rate(totals.block_ops(), drained),
        "eventThreadCpuNs": event_cpu as f64 / totals.block_ops() as f64,
        "issueSeconds": issued.as_secs_f64(), "drainedSeconds": drained.as_secs_f64(),
        "lookupUs": percentiles(samples),
    }))
}

// ---------------------------------------------------------------- mem

/// The compressed tree applies events only inside `worker()`, so it has a thread.
struct Threaded {
    index: std::sync::Arc<ConcurrentRadixTreeCompressed>,
    sender: flume::Sender<WorkerTask>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Threaded {
    fn new() -> Self {
        let index = std::sync::Arc::new(ConcurrentRadixTreeCompressed::new());
        let (sender, receiver) = flume::bounded(256);
        let backend = index.clone();
        let thread = std::thread::spawn(move || backend.worker(receiver, None).unwrap());
        Self {
            index,
            sender,
            thread: Some(thread),
        }
    }

    fn apply(&self, event: RouterEvent) -> Result<()> {
        Ok(self.sender.send(WorkerTask::Event(event))?)
    }

    fn flush(&self) -> Result<()> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.sender.send(WorkerTask::Flush(sender))?;
        Ok(receiver.blocking_recv()?)
    }

    fn clean_up(&self) {
        self.index.run_cleanup_task();
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        let _ = self.sender.send(WorkerTask::Terminate);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Streams the events from the file, so that only the index stays in memory.
fn footprint(path: &str, live: &str) -> Result<Value> {
    let mut record = Record::default();
    let mut reader = Reader::open(Path::new(live))?;
    let mut offsets = Vec::with_capacity(reader.records as usize);
    loop {
        let offset = reader.offset();
        if !reader.next(&mut record)? {
            break;
        }
        offsets.push(offset);
    }
    let mut events = Reader::open(Path::new(path))?;

    let base = resident();
    let index = Threaded::new();
    let mut memberships = 0i64;
    let mut event_id = 0;
    while events.next(&mut record)? {
        if record.kind == LOOKUP {
            continue;
        }
        memberships += if record.kind == STORED {
            record.len() as i64
        } else {
            -(record.len() as i64)
        };
        event_id += 1;
        index.apply(to_event(&record, event_id))?;
    }
    index.flush()?;
    trim();
    let full = resident();
    index.clean_up();
    trim();
    let swept = resident();

    for &offset in offsets.iter().rev() {
        reader.read_at(offset, &mut record)?;
        event_id += 1;
        index.apply(to_removal(&record, event_id))?;
    }
    index.flush()?;
    index.clean_up();
    trim();
    let emptied = resident();
    Ok(json!({
        "memberships": memberships, "rssBytes": full - base,
        "sweptRssBytes": swept - base, "emptiedRssBytes": emptied - base,
    }))
}

/// Resident bytes of the process.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kilobytes: i64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

fn trim() {
    unsafe { libc::malloc_trim(0) };
}

// ---------------------------------------------------------------- measuring

fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// CPU time of this thread in nanoseconds.
fn thread_cpu() -> u64 {
    cpu_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads in nanoseconds.
fn process_cpu() -> u64 {
    cpu_clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_clock(clock: libc::clockid_t) -> u64 {
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn percentiles(mut samples: Vec<u64>) -> Value {
    samples.sort_unstable();
    let at = |q: f64| samples[((samples.len() - 1) as f64 * q).round() as usize] as f64 / 1000.0;
    json!({ "n": samples.len(), "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1.0) })
}

fn extend(line: &mut Value, more: Value) {
    line.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
}
