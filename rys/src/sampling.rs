use std::fmt;
use std::ptr::{self, NonNull};

use llama_sys as sys;

use crate::ffi::{self, call, or_unknown};
use crate::{Context, Error, Model, Result, Token};

/// Index of the largest value; of equals the lowest; 0 for an empty slice. NaN is never chosen over
/// a number.
pub fn argmax(logits: &[f32]) -> Token {
    let mut best = 0;
    for (i, &x) in logits.iter().enumerate() {
        let y = logits[best];
        if x > y || (y.is_nan() && !x.is_nan()) {
            best = i;
        }
    }
    // a vocabulary has less than 2^31 tokens
    best as Token
}

/// Steps of a sampler, in the order they are applied; the last step chooses the token and gives the
/// [`Sampler`].
///
/// ```no_run
/// # fn f(model: &rys::Model) -> rys::Result<()> {
/// let sampler = rys::SamplerBuilder::new(model)?
///     .penalties(64, 1.1, 0.0, 0.0)?
///     .top_k(40)?
///     .top_p(0.95, 1)?
///     .temp(0.8)?
///     .dist(42)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[doc(alias = "llama_sampler_chain_init")]
pub struct SamplerBuilder(Sampler);

/// Chooses tokens. `Send` and not `Sync`. It keeps the model alive.
#[doc(alias = "llama_sampler")]
pub struct Sampler {
    chain: NonNull<sys::llama_sampler>,
    model: Model,
}

// SAFETY: a sampler has no ties to a thread; it may be used by one at a time.
unsafe impl Send for Sampler {}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: the only owner; freeing a chain frees its steps and does not throw.
        unsafe { sys::llama_sampler_free(self.chain.as_ptr()) };
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the chain is alive.
        let n = unsafe { sys::llama_sampler_chain_n(self.chain.as_ptr()) };
        f.debug_struct("Sampler")
            .field("steps", &n)
            .finish_non_exhaustive()
    }
}

impl SamplerBuilder {
    /// No steps yet.
    ///
    /// # Errors
    ///
    /// [`Error::Llama`] when memory runs out.
    pub fn new(model: &Model) -> Result<Self> {
        // SAFETY: plain constructors.
        let chain =
            unsafe { sys::llama_sampler_chain_init(sys::llama_sampler_chain_default_params()) };
        let chain = NonNull::new(chain).ok_or_else(|| failed("llama_sampler_chain_init"))?;
        Ok(Self(Sampler {
            chain,
            model: model.clone(),
        }))
    }

    fn step(self, call: &'static str, step: *mut sys::llama_sampler) -> Result<Self> {
        if step.is_null() {
            return Err(failed(call));
        }
        // SAFETY: the chain is alive and takes the step over.
        unsafe { sys::llama_sampler_chain_add(self.0.chain.as_ptr(), step) };
        Ok(self)
    }

    fn n_vocab(&self) -> i32 {
        i32::try_from(self.0.model.n_vocab()).unwrap_or(i32::MAX)
    }

    /// Keeps the `k` most likely tokens; 0 keeps all.
    ///
    /// # Errors
    ///
    /// [`Error::Llama`] when memory runs out.
    #[doc(alias = "llama_sampler_init_top_k")]
    pub fn top_k(self, k: u32) -> Result<Self> {
        let k = i32::try_from(k).unwrap_or(i32::MAX);
        // SAFETY: a plain constructor.
        self.step("llama_sampler_init_top_k", unsafe {
            sys::llama_sampler_init_top_k(k)
        })
    }

    /// Keeps the most likely tokens whose probabilities add up to `p`, and at least `min_keep`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `0 <= p <= 1`.
    #[doc(alias = "llama_sampler_init_top_p")]
    pub fn top_p(self, p: f32, min_keep: usize) -> Result<Self> {
        within("top_p", p, 0.0, 1.0)?;
        // SAFETY: a plain constructor.
        self.step("llama_sampler_init_top_p", unsafe {
            sys::llama_sampler_init_top_p(p, min_keep)
        })
    }

    /// Keeps tokens at least `p` times as likely as the most likely one, and at least `min_keep`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `0 <= p <= 1`.
    #[doc(alias = "llama_sampler_init_min_p")]
    pub fn min_p(self, p: f32, min_keep: usize) -> Result<Self> {
        within("min_p", p, 0.0, 1.0)?;
        // SAFETY: a plain constructor.
        self.step("llama_sampler_init_min_p", unsafe {
            sys::llama_sampler_init_min_p(p, min_keep)
        })
    }

    /// Divides the logits by `t`; 0 keeps only the most likely token.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a negative or infinite `t`.
    #[doc(alias = "llama_sampler_init_temp")]
    pub fn temp(self, t: f32) -> Result<Self> {
        within("temp", t, 0.0, f32::MAX)?;
        // SAFETY: a plain constructor.
        self.step("llama_sampler_init_temp", unsafe {
            sys::llama_sampler_init_temp(t)
        })
    }

    /// Makes the last `last_n` tokens less likely: divides (or multiplies) their logits by `repeat`,
    /// and subtracts `frequency` for each occurrence and `presence` once. 1, 0 and 0 do nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `repeat > 0` and all three are finite.
    #[doc(alias = "llama_sampler_init_penalties")]
    pub fn penalties(
        self,
        last_n: u32,
        repeat: f32,
        frequency: f32,
        presence: f32,
    ) -> Result<Self> {
        within("repeat", repeat, f32::MIN_POSITIVE, f32::MAX)?;
        within("frequency", frequency, f32::MIN, f32::MAX)?;
        within("presence", presence, f32::MIN, f32::MAX)?;
        let last_n = i32::try_from(last_n).unwrap_or(i32::MAX);
        let n_vocab = self.n_vocab();
        // SAFETY: a plain constructor.
        self.step("llama_sampler_init_penalties", unsafe {
            sys::llama_sampler_init_penalties(n_vocab, last_n, repeat, frequency, presence)
        })
    }

    /// Allows only what a GBNF grammar accepts from its rule `root`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a NUL byte; [`Error::Llama`] for a grammar that does not parse.
    #[doc(alias = "llama_sampler_init_grammar")]
    pub fn grammar(self, grammar: &str, root: &str) -> Result<Self> {
        let grammar = ffi::c_string("the grammar", grammar)?;
        let root = ffi::c_string("the root rule", root)?;
        let mut out = ptr::null_mut();
        let vocab = self.0.model.vocab();
        let done = call(|err| {
            // SAFETY: the vocabulary is alive as long as the sampler; both texts are NUL-terminated.
            unsafe {
                sys::rys_sampler_init_grammar(vocab, grammar.as_ptr(), root.as_ptr(), &mut out, err)
            }
        });
        match done {
            Ok(_) if !out.is_null() => self.step("llama_sampler_init_grammar", out),
            Ok(reason) | Err(reason) => Err(Error::Llama {
                call: "llama_sampler_init_grammar",
                reason: or_unknown(reason),
            }),
        }
    }

    /// Chooses the most likely token.
    ///
    /// # Errors
    ///
    /// [`Error::Llama`] when memory runs out.
    #[doc(alias = "llama_sampler_init_greedy")]
    pub fn greedy(self) -> Result<Sampler> {
        // SAFETY: a plain constructor.
        let step = unsafe { sys::llama_sampler_init_greedy() };
        Ok(self.step("llama_sampler_init_greedy", step)?.0)
    }

    /// Chooses at random by probability; the same seed and logits give the same tokens.
    ///
    /// # Errors
    ///
    /// [`Error::Llama`] when memory runs out.
    #[doc(alias = "llama_sampler_init_dist")]
    pub fn dist(self, seed: u32) -> Result<Sampler> {
        // SAFETY: a plain constructor.
        let step = unsafe { sys::llama_sampler_init_dist(seed) };
        Ok(self.step("llama_sampler_init_dist", step)?.0)
    }

    /// Chooses at random so that the surprise stays near `tau` (Mirostat 2.0), learning at rate
    /// `eta`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless both are positive and finite.
    #[doc(alias = "llama_sampler_init_mirostat_v2")]
    pub fn mirostat_v2(self, seed: u32, tau: f32, eta: f32) -> Result<Sampler> {
        within("tau", tau, f32::MIN_POSITIVE, f32::MAX)?;
        within("eta", eta, f32::MIN_POSITIVE, f32::MAX)?;
        // SAFETY: a plain constructor.
        let step = unsafe { sys::llama_sampler_init_mirostat_v2(seed, tau, eta) };
        Ok(self.step("llama_sampler_init_mirostat_v2", step)?.0)
    }
}

impl Sampler {
    /// The most likely token, always.
    ///
    /// # Errors
    ///
    /// [`Error::Llama`] when memory runs out.
    pub fn greedy(model: &Model) -> Result<Self> {
        SamplerBuilder::new(model)?.greedy()
    }

    /// Chooses the token that follows token `i` of the context's last batch, and accepts it. `i` as
    /// for [`Context::logits`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a context of another model; [`Error::Llama`] when that token
    /// has no logits, or a grammar leaves no token.
    #[doc(alias = "llama_sampler_sample")]
    pub fn sample(&mut self, ctx: &mut Context, i: i32) -> Result<Token> {
        if ctx.model.as_ptr() != self.model.as_ptr() {
            return Err(Error::invalid("the sampler was made for another model"));
        }
        ctx.logits(i)?;
        let mut token = sys::LLAMA_TOKEN_NULL;
        let done = call(|err| {
            // SAFETY: both are alive and used by nobody else.
            unsafe {
                sys::rys_sampler_sample(self.chain.as_ptr(), ctx.as_ptr(), i, &mut token, err)
            }
        });
        done.map_err(|reason| Error::Llama {
            call: "llama_sampler_sample",
            reason,
        })?;
        self.model.require_token(token)?;
        Ok(token)
    }

    /// Tells the steps about a token that was not sampled, such as one of the prompt.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a token outside the vocabulary; [`Error::Llama`] for one that a
    /// grammar does not accept.
    #[doc(alias = "llama_sampler_accept")]
    pub fn accept(&mut self, token: Token) -> Result<()> {
        self.model.require_token(token)?;
        // SAFETY: the chain is alive and used by nobody else.
        call(|err| unsafe { sys::rys_sampler_accept(self.chain.as_ptr(), token, err) })
            .map(drop)
            .map_err(|reason| Error::Llama {
                call: "llama_sampler_accept",
                reason,
            })
    }

    /// Forgets every token, as when freshly made.
    ///
    /// # Errors
    ///
    /// [`Error::Llama`].
    #[doc(alias = "llama_sampler_reset")]
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: the chain is alive and used by nobody else.
        call(|err| unsafe { sys::rys_sampler_reset(self.chain.as_ptr(), err) })
            .map(drop)
            .map_err(|reason| Error::Llama {
                call: "llama_sampler_reset",
                reason,
            })
    }
}

fn failed(call: &'static str) -> Error {
    Error::Llama {
        call,
        reason: "llama.cpp gave no reason".to_owned(),
    }
}

fn within(name: &str, value: f32, min: f32, max: f32) -> Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name} is {value}; allowed are {min:e} to {max:e}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argmax_takes_the_first_of_equals_and_skips_nan() {
        assert_eq!(argmax(&[0.5, 2.0, 2.0, -1.0]), 1);
        assert_eq!(argmax(&[f32::NAN, -3.0, -2.0]), 2);
        assert_eq!(argmax(&[f32::NEG_INFINITY, f32::NEG_INFINITY]), 0);
        assert_eq!(argmax(&[]), 0);
    }

    #[test]
    fn ranges_refuse_nan() {
        assert!(within("p", f32::NAN, 0.0, 1.0).is_err());
        assert!(within("p", 1.0, 0.0, 1.0).is_ok());
    }
}
