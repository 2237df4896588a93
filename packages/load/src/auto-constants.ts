/**
 * The constants of `auto`: every number that its cost, what it learns and its guard are built on. One table
 * for packages/load and packages/selection; their files declare none of their own.
 *
 * The comment of a constant is its row: its unit, what it means, why it is so, and in brackets the section of
 * docs/decisions/0037-what-auto-weighs.md that has the reason or the measurement. A test checks that form.
 * `Times` is a factor without a unit; a share is 0 … 1.
 *
 * Code copies what it needs into constants of its own module, as in `const { FADE } = AUTO_CONSTANTS.steps`.
 * Read from the object, or imported one by one, the constants make a decision of auto 5 % slower.
 */

export const AUTO_CONSTANTS = {
  /** The cost of a placement: packages/selection/src/policies/auto-terms.ts. */
  cost: {
    /**
     * Mean prefills. A longer prefill costs others no more than this: else it would wait for its blocks
     * behind everybody. [later_ms]
     */
    PRICED_PREFILLS_MAX: 2,
    /** Exponent. How fast the price of eviction falls as queues fill; found by simulation. [evict_ms] */
    EVICT_EXPONENT: 4,
    /**
     * Tokens. Assumed size of a KV cache whose engine does not state it: some tens of gigabytes of a
     * mid-sized model. [evict_ms]
     */
    CAPACITY_TOKENS_ASSUMED: 262_144,
    /**
     * Share. A cache that holds less was emptied, as by a restart: a cache under load holds more than what
     * runs. [evict_ms]
     */
    EMPTIED_SHARE: 0.5,
    /**
     * Requests. How far the running request that ends first is from its end: on average it is halfway there.
     * [wait_ms]
     */
    FIRST_END_REQUESTS: 0.5,
    /**
     * Exponent. How fast a millisecond of decoding loses its price as queues fill: then prefill is what is
     * short. [decode_ms]
     */
    IDLE_EXPONENT: 8,
    /**
     * Share. Of the price of decoding, for a prompt that nobody shares: its move serves only itself, and
     * computes all anew. [decode_ms]
     */
    UNSHARED_SHARE: 0.1,
    /**
     * Times. Least price of decoding per unit of spread beyond chance: fast workers would get more than they
     * decode. [decode_ms]
     */
    UNLIKE_WEIGHT: 0.22,
    /**
     * Times. Spread of step times (standard deviation ÷ mean) that chance makes of equal workers. [decode_ms]
     */
    CHANCE_SPREAD: 0.1,
    /**
     * Times. Upper limit of that least price; more made the 99th percentile of the first token worse.
     * [decode_ms]
     */
    UNLIKE_PRICE_MAX: 0.05,
    /**
     * Times. Extra price of holding up decoding requests in an idle fleet: there is room elsewhere.
     * [others_ms]
     */
    HOLD_UP_PRICE: 100,
    /**
     * Exponent. How fast that extra price falls as queues fill: then there is no room elsewhere. [others_ms]
     */
    HOLD_UP_EXPONENT: 24,
    /**
     * Steps. Decoding is held up this long before the extra price begins, by a prompt that others share: less
     * is not felt. [others_ms]
     */
    FREE_STEPS_SHARED: 0.5,
    /**
     * Steps. The same for a prompt that nobody shares: to compute it elsewhere serves only itself.
     * [others_ms]
     */
    FREE_STEPS_UNSHARED: 16,
    /**
     * Ms. Differences below it are noise: of timers, of the system's queues, of the few requests that taught
     * the times. [unsure_ms]
     */
    UNSURE_MS: 2,
    /** Times. An idle worker with this much churn is as doubtful as one that has a request. [unsure_ms] */
    CHURN_MAX: 4,
  },

  /** Least-squares fits of step times: engine-costs.ts. */
  steps: {
    /**
     * Times. A time this much too long or too short moves the fit no further: a stalled proxy is no slow
     * engine. [Step times]
     */
    OUTLIER_TIMES: 8,
    /**
     * Share. Errors are relative to the observed time, at least to this part of the expected one: else one
     * fast row outweighs 64. [Step times]
     */
    ERROR_SCALE_MIN: 0.5,
    /**
     * Ms. Shortest observed time: a clock does not tell less apart, and a quotient stays finite. [Step times]
     */
    OBSERVED_MS_MIN: 1e-3,
    /**
     * Observations. The first ones are kept and fitted anew with each that comes: most of them decide what is
     * an outlier. [Step times]
     */
    FIRST_ROWS: 16,
    /**
     * Share. Kept of the weight of all earlier observations when one comes: after 150 a tenth is left. [Step
     * times]
     */
    FADE: 0.985,
    /**
     * Times. A worker that is so much slower or faster than most others does not teach the fleet, whatever
     * share of the requests it answers. [Step times]
     */
    ODD_TIMES: 2,
    /**
     * Requests. Of a worker, before they are compared, and between two comparisons: fewer say more of
     * lengths. [Step times]
     */
    EVENT_ANSWERS_MIN: 8,
    /**
     * Times. Tokens in an event of a stream, beyond those of the median worker, from which they are not
     * believed: engines that guess tokens ahead send some at once. [Step times]
     */
    EVENT_TOKENS_APART: 2,
    /** Workers. Of fewer than three workers no one can say which is the odd one. [Step times] */
    COMPARED_MIN: 3,
    /** Observations. Before a worker is compared with the others. [Step times] */
    COMPARED_ROWS: 8,
    /**
     * Share. Most of the fleet's fit that is of one worker, once three are compared: a busy one is no
     * majority. [Step times]
     */
    FLEET_SHARE_MAX: 0.4,
    /**
     * Ms. What was confirmed within this time counts whole: pauses of traffic change nothing. [Step times]
     */
    AGE_FREE_MS: 600_000,
    /**
     * Ms. Beyond it, half of what a worker differs from the fleet goes in this time: heat and neighbours pass
     * in hours. [Step times]
     */
    AGE_WORKER_HALF_MS: 3_600_000,
    /**
     * Ms. And half of what the fleet differs from the priors in this one: those are worse than yesterday's
     * figures. [Step times]
     */
    AGE_FLEET_HALF_MS: 86_400_000,
    /** Observations. Weight of the fleet's fit in that of a worker. [Step times] */
    FLEET_WEIGHT: 8,
    /** Observations. Weight of the assumption that a worker is as fast as the fleet. [Step times] */
    SPEED_WEIGHT: 3,
    /**
     * Observations. Of the fleet, for each worker: one that gave none meanwhile is a stranger again and gets
     * a chance. [Step times]
     */
    STRANGER_ROWS: 30,
    /**
     * Observations. Weight of the priors in the fit of the fleet: they are wrong by a factor of 2 to 10
     * elsewhere. [Step times]
     */
    PRIOR_WEIGHT: 0.3,
    /**
     * Ms. A prior of a step's fixed time is off by so much at least: that time is a small part of a step, or
     * all of it. [Step times]
     */
    PRIOR_STEP_MS_SCALE_MIN: 10,
    /**
     * Times. A coefficient fitted as 0 counts as its prior ÷ this: else it would have no scale. [Step times]
     */
    ZERO_PRIOR_DIVISOR: 100,
    /** Sweeps. Of coordinate descent over the three coefficients in one solution. [Step times] */
    SWEEPS: 12,
    /**
     * Ln. A worker is of another kind if its predicted ÷ observed time is off by more than this, and by
     * chance. [Step times]
     */
    APART: 0.15,
    /**
     * Ln. What chance explains of that after one observation; it falls with the root of their number. [Step
     * times]
     */
    APART_OF_CHANCE: 1,
    /**
     * Observations. Between two solutions, once there are twice as many: a solution costs more than an
     * observation. [Step times]
     */
    SOLVE_EVERY: 16,
    /** Ms. Fixed time of a prefill step before any was seen: a mid-sized model on a fast GPU. [Step times] */
    PRIOR_PREFILL_STEP_MS: 1,
    /** Ms. A charged token of prefill, before any was seen. [Step times] */
    PRIOR_PREFILL_TOKEN_MS: 0.035,
    /** Ms. A pair of a new token and a token of its context, before any was seen. [Step times] */
    PRIOR_PREFILL_PAIR_MS: 1e-6,
    /** Ms. Fixed time of a decode step before any was seen. [Step times] */
    PRIOR_DECODE_STEP_MS: 10,
    /** Ms. A request in a decode step, before any was seen. [Step times] */
    PRIOR_DECODE_REQUEST_MS: 0.1,
    /** Ms. A token of context in a decode step, before any was seen. [Step times] */
    PRIOR_DECODE_TOKEN_MS: 4e-5,
    /** Ms. A hand-over of a computed prompt, before any was seen. [Transfers] */
    PRIOR_TRANSFER_MS: 5,
    /** Ms. A token whose blocks move, before any was seen: 128 KiB at 13 GB/s. [Transfers] */
    PRIOR_TRANSFER_TOKEN_MS: 0.01,
  },

  /** Alarms about what was learned: packages/load/src/odd-workers.ts. */
  odd: {
    /** Tokens. Of the prompt by whose times workers are compared: many steps are no longer. [Step times] */
    SAMPLE_PROMPT_TOKENS: 2048,
    /** Requests. In the decode step by whose time workers are compared. [Step times] */
    SAMPLE_REQUESTS: 8,
    /**
     * Times. Farther from the priors than this is no accelerator: the priors are off by 2 to 10 elsewhere.
     * [Step times]
     */
    PRIOR_FAR_TIMES: 100,
    /** Ms. How long a worker is far before that is told, and near before its end is. [Step times] */
    ALARM_MS: 60_000,
  },
  /** The number of tokens below which a prefill step takes no less: prefill-costs.ts. */
  knee: {
    /**
     * Tokens. The candidates: an accelerator's operations for each byte that it reads are 150 to 400, or
     * tokens are guessed. [The knee]
     */
    KNEES: [0, 64, 128, 256],
    /** Tokens. Which of them counts until another predicts better. [The knee] */
    KNEE_PRIOR: 256,
    /** Observations. Before the knee moves. [The knee] */
    KNEE_ROWS_MIN: 32,
    /** Share. Kept of the weight of all earlier errors when one comes. [The knee] */
    KNEE_FADE: 0.985,
    /**
     * Share. Of the present knee's errors, below which another one counts: a knee must not flutter. [The
     * knee]
     */
    KNEE_BETTER_SHARE: 0.7,
    /** Times. An error counts as at most so much too slow or too fast. [The knee] */
    KNEE_RATIO_MAX: 8,
  },

  /** What is booked on workers and observed of them: engine-book.ts, engine-slot.ts. */
  book: {
    /** Tokens. A step holds so many where its engine does not say. [What is booked] */
    STEP_TOKENS_DEFAULT: 8192,
    /** Steps. A busy period that goes on is observed in parts of this length. [What is booked] */
    PERIOD_STEPS: 16,
    /**
     * Share. Weight of a busy period that does not say what was cached where others do: the prediction may be
     * wrong. [What is booked]
     */
    UNSAID_WEIGHT: 0.25,
    /**
     * Periods. Until so many taught as delivered, they teach as predicted too: answers take minutes, and
     * priors are worse. [What is booked]
     */
    PERIODS_FEW: 32,
    /** Requests. Reach of running means. [What is booked] */
    MEAN_REQUESTS: 500,
    /**
     * Observations. The first ones of a running mean count as they are: there is no mean yet. [What is
     * booked]
     */
    MEAN_FIRST_FIGURES: 32,
    /**
     * Times. A later figure counts as at most this many means: one moves the mean by 7/500 at most. [What is
     * booked]
     */
    MEAN_OUTLIER_TIMES: 8,
    /**
     * Tokens. An answer with more for each millisecond is not believed: a hundred times what hardware makes
     * for one request. [What is booked]
     */
    OUTPUT_TOKENS_PER_MS: 100,
    /** Tokens. As many are believed of an answer that came at once, as from a cache. [What is booked] */
    OUTPUT_TOKENS_AT_ONCE: 4096,
    /**
     * Tokens. The most of an answer whose time is not known: the longest that models can. [What is booked]
     */
    OUTPUT_TOKENS_MOST: 1_048_576,
    /**
     * Ms. A time that is no outlier, however short the mean is: of a long prompt or answer. [What is booked]
     */
    USUAL_MS: 1000,
    /** Tokens. Expected output before any was seen. [What is booked] */
    OUTPUT_TOKENS_PRIOR: 200,
    /**
     * Times. A worker's mean output counts as at most so far from the median worker's: its word is its own.
     * [What is booked]
     */
    OUTPUT_APART_TIMES: 4,
    /** Times. Its answers weigh as at most this many of the median worker's. [What is booked] */
    OUTPUT_WEIGHT_TIMES: 2,
    /** Requests. The fleet's mean output is computed anew after this many. [What is booked] */
    OUTPUT_EVERY: 8,
    /** Share. A busy period in which decoding took more teaches nothing of prefill. [What is booked] */
    DECODE_SHARE_MAX: 0.8,
    /** Tokens. An answer with fewer gaps between tokens teaches nothing of decoding. [What is booked] */
    DECODE_GAPS_MIN: 4,
    /** Share. Nor does one that spent more of its time under the prefill of others. [What is booked] */
    STALLED_SHARE_MAX: 0.7,
    /**
     * Share. The share of busy queues is believed up to this: the price of queues stays finite. [later_ms]
     */
    BUSY_SHARE_MAX: 0.95,
    /**
     * Times. How many times its estimate beyond it the prefill of an answer that does not stream may take,
     * before its speed is learned: then its tokens leave the load. [What is booked]
     */
    UNLEARNED_TIMES: 20,
    /** Ms. The least of that time, for prompts of a few tokens. [What is booked] */
    UNLEARNED_MS_MIN: 500,
    /**
     * Requests. Of the fleet, within which new tokens of a worker fade by the factor e: its churn. [evict_ms]
     */
    CHURN_REQUESTS: 500,
    /** Ms. Reach of the rate at which requests come: traffic changes within minutes. [Rates] */
    RATE_REACH_MS: 60_000,
  },

  /** Workers of which little is known while they are busy: engine-slot.ts. */
  stranger: {
    /** Periods. A worker that taught fewer is a stranger. [What is booked] */
    STRANGER_PERIODS: 8,
    /**
     * Times. Its busy period is late from this many times the estimate on: what waits is expected to be as
     * late. [What is booked]
     */
    SLOW_FROM_TIMES: 1.5,
    /** Times. It counts as at most so late: a long stall is no slow engine. [What is booked] */
    SLOW_TIMES_MAX: 8,
    /** Ms. As much prefill in time is counted with each period: some ms more say nothing. [What is booked] */
    SLOW_FREE_MS: 50,
    /** Ms. Lateness adds at most so much to what waits there. [What is booked] */
    SLOW_MS_MAX: 10_000,
  },

  /** What own bookings do not explain: unseen-load.ts. */
  unseen: {
    /** Requests. Reach of the mean lateness: one request moves it by 2/500 at most. [Unseen load] */
    REACH_REQUESTS: 500,
    /**
     * Times. A first token is late from so many times the expected time on: chance alone must not turn it on.
     * [Unseen load]
     */
    LATE_TIMES: 1.25,
    /**
     * Times. A first token so many times too early was told at another time, or the expectation is wrong.
     * [Unseen load]
     */
    EARLY_TIMES: 2,
    /**
     * Share. Of the time to the first token: what is late by chance. Below capacity own bookings leave less.
     * [Unseen load]
     */
    UNSEEN_SHARE_MIN: 0.01,
    /** Times. Weight of a share beyond that. [Unseen load] */
    UNSEEN_WEIGHT: 4,
    /** Ms. A first token that is overdue for longer may never come. [Unseen load] */
    OVERDUE_MS_MAX: 10_000,
  },

  /** Whether following the caches pays: packages/selection/src/guard.ts and arm-outcomes.ts. */
  guard: {
    /**
     * Share. Of the decisions that go by least-loaded while nothing speaks against the policy; the default of
     * the setting. [The guard]
     */
    SHARE_DEFAULT: 0.01,
    /** Share. Of the mean time to the first token: what the worse arm may cost. [The guard] */
    LOSS_MAX: 0.01,
    /**
     * Share. Of decisions that a shrunk policy keeps at least: else nobody would see that it is good again.
     * [The guard]
     */
    AFFINITY_SHARE_MIN: 0.005,
    /**
     * Share. Of decisions that go by least-loaded in a test, and the largest share of the setting. [The
     * guard]
     */
    TEST_SHARE: 0.5,
    /**
     * Times. An experiment that costs more than so many mean first tokens is made so much more seldom. [The
     * guard]
     */
    DEAR_TIMES: 0.5,
    /** Share. Of dear experiments that are made at least: the prediction may be wrong. [The guard] */
    DEAR_SHARE_MIN: 0.02,
    /** Share. Of dear experiments that are made at least in a test. [The guard] */
    DEAR_TEST_SHARE_MIN: 0.25,
    /** Times. A time counts as at most so many times the mean of prompts as long. [The guard] */
    GUARD_OUTLIER_TIMES: 10,
    /** Ms. Times below count as this, a microsecond. [The guard] */
    FIRST_TOKEN_MS_MIN: 1e-3,
    /** Ms. Times beyond count as this, a day. [The guard] */
    FIRST_TOKEN_MS_MAX: 86_400_000,
    /** Classes. Lengths of prompts that have a mean of their own, by log2 of their tokens. [The guard] */
    LENGTH_CLASSES: 32,
    /** Outcomes. Of a length, before its mean counts. [The guard] */
    LENGTH_OUTCOMES_MIN: 2,
    /** Outcomes. Reach of the mean of a length. [The guard] */
    LENGTH_OUTCOMES: 64,
    /** Outcomes. Reach of the mean time to the first token of all. [The guard] */
    FIRST_TOKEN_OUTCOMES: 256,
    /**
     * Outcomes. Reach of calibration and cached share, and how many there must be to suspect anything. [The
     * guard]
     */
    SUSPICION_OUTCOMES: 64,
    /**
     * Outcomes. Of each arm in a phase, before they say anything; of an arm that does not answer, decisions.
     * [The guard]
     */
    ARM_OUTCOMES_MIN: 10,
    /** Outcomes. Reach of the mean of an arm. [The guard] */
    ARM_OUTCOMES: 128,
    /**
     * Standard errors. Waiting requests count in full once they have waited longer than usual by so many.
     * [The guard]
     */
    Z_OVERDUE: 3,
    /** Outcomes. Of each arm, after which a test is over. [The guard] */
    TEST_OUTCOMES: 48,
    /**
     * Decisions. Of each arm that have not ended, beyond which a test makes no more: it waits for their ends,
     * and would go on with half of all decisions until then. [The guard]
     */
    TEST_OPEN_MAX: 96,
    /** Standard errors. By which affinity is worse. [The guard] */
    Z_WORSE: 2,
    /** Standard errors. By which control looks better, so that a test begins. [The guard] */
    Z_SUSPECT: 2.5,
    /** Standard errors. Below them a shrunk affinity is no longer worse. [The guard] */
    Z_EVEN: 0.5,
    /** Standard errors. Below them affinity is better, and a test ends early. [The guard] */
    Z_BETTER: -1,
    /**
     * Times. The mean of affinity must also be so much worse: a certain difference may be too small to act
     * on. [The guard]
     */
    WORSE_RATIO: 1.05,
    /** Log2. Observed ÷ predicted first token beyond which the prediction is off: 2.8 times. [The guard] */
    CALIBRATION_OFF: 1.5,
    /**
     * Share. Of the tokens that were predicted to be cached and were not, beyond which the prediction is off.
     * [The guard]
     */
    CACHED_OFF: 0.5,
    /** Log2. Bound of a calibration, and of z where there is no error to divide by. [The guard] */
    LOG_MAX: 16,
    /** Outcomes. Between two tests at first; a test that finds nothing doubles it. [The guard] */
    PAUSE_MIN: 250,
    /** Outcomes. Between two tests at most. [The guard] */
    PAUSE_MAX: 16_000,
    /** Pauses. Without a test, after which the pause is the first one again. [The guard] */
    FORGIVEN_PAUSES: 4,
    /** Outcomes. Reach of the mean of a phase, and how many there must be to see a relapse. [The guard] */
    RELAPSE_OUTCOMES: 48,
    /** Times. First tokens that come so much later than in the last test are a relapse. [The guard] */
    RELAPSE_RATIO: 2.5,
    /**
     * Outcomes. First tokens and ends between two judgements while the policy is trusted: one more decides
     * nothing, and judging costs. [The guard]
     */
    JUDGE_EVERY: 8,
    /**
     * Share. Of recent requests that their workers failed, more than in the last test, beyond which something
     * is off. [The guard]
     */
    ERRORS_OFF: 0.1,
    /**
     * Times. Errors and whole times must differ by this many more standard errors: they are looked at as
     * often as first tokens, so chance would have three turns, and those that are soon over are seen first.
     * [The guard]
     */
    Z_OTHER_TIMES: 1.5,
    /** Standard errors. A loss so certain is tested at once, whatever the test costs. [The guard] */
    Z_CERTAIN: 4,
    /** Ms. Without a finding, after which experiments have a budget. [The guard] */
    QUIET_MS: 3_600_000,
    /** Share. Of prompt tokens that experiments may cost then, while the policy is trusted. [The guard] */
    QUIET_TRIED_SHARE: 0.0005,
    /** Share. Of prompt tokens that are saved then for tests. [The guard] */
    QUIET_SAVED_SHARE: 0.0004,
    /** Times. The cost of a test that is saved at most. [The guard] */
    SAVED_TESTS: 2,
    /** Outcomes. Reach of the means of a worker. [The guard] */
    WORKER_OUTCOMES: 128,
    /** Standard errors. By which a worker is worse: there are many workers to be wrong about. [The guard] */
    Z_WORKER: 4,
  },
} as const
