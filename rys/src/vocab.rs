use std::ffi::c_char;

use llama_sys as sys;

use crate::{Error, Model, Result, Token, ffi};

/// The vocabulary: text to tokens and back.
impl Model {
    pub(crate) fn vocab(&self) -> *const sys::llama_vocab {
        // SAFETY: the model is alive; its vocabulary lives as long.
        unsafe { sys::llama_model_get_vocab(self.as_ptr()) }
    }

    /// Number of tokens in the vocabulary.
    #[doc(alias = "llama_vocab_n_tokens")]
    pub fn n_vocab(&self) -> usize {
        // SAFETY: the vocabulary is alive.
        unsafe { sys::llama_vocab_n_tokens(self.vocab()) }.max(0) as usize
    }

    /// Turns text into tokens.
    ///
    /// `add_special` adds the tokens that the model wants around a text, such as BOS.
    /// `parse_special` reads text such as `<|im_start|>` as the token of that name; leave it off for
    /// text from users.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for 2 GiB of text or more, and for a model without a vocabulary.
    #[doc(alias = "llama_tokenize")]
    pub fn tokenize(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<Token>> {
        self.require_vocab()?;
        let len = ffi::c_len("the text's length in bytes", text.len())?;
        ffi::sized(
            "llama_tokenize",
            text.len() + 2,
            |buf, capacity, ret, err| {
                // SAFETY: text and buffer are as long as said.
                unsafe {
                    sys::rys_tokenize(
                        self.vocab(),
                        text.as_ptr().cast::<c_char>(),
                        len,
                        buf,
                        capacity,
                        add_special,
                        parse_special,
                        ret,
                        err,
                    )
                }
            },
        )
    }

    /// Turns tokens into text. `special` shows special tokens by their names; otherwise they are
    /// left out. Bytes that are not UTF-8 become `U+FFFD`; a stream of tokens should collect
    /// [`token_bytes`](Self::token_bytes) instead, as a character may span tokens.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a token outside the vocabulary.
    #[doc(alias = "llama_detokenize")]
    pub fn detokenize(&self, tokens: &[Token], special: bool) -> Result<String> {
        self.require_vocab()?;
        tokens.iter().try_for_each(|&t| self.require_token(t))?;
        let n = ffi::c_len("the number of tokens", tokens.len())?;
        let bytes = ffi::sized::<u8>(
            "llama_detokenize",
            tokens.len() * 8 + 16,
            |buf, capacity, ret, err| {
                // SAFETY: tokens and buffer are as long as said.
                unsafe {
                    sys::rys_detokenize(
                        self.vocab(),
                        tokens.as_ptr(),
                        n,
                        buf.cast::<c_char>(),
                        capacity,
                        false,
                        special,
                        ret,
                        err,
                    )
                }
            },
        )?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The bytes of one token, not always whole UTF-8 characters.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a token outside the vocabulary.
    #[doc(alias = "llama_token_to_piece")]
    pub fn token_bytes(&self, token: Token, special: bool) -> Result<Vec<u8>> {
        self.require_vocab()?;
        self.require_token(token)?;
        ffi::sized::<u8>("llama_token_to_piece", 32, |buf, capacity, ret, err| {
            // SAFETY: the buffer is as long as said.
            unsafe {
                sys::rys_token_to_piece(
                    self.vocab(),
                    token,
                    buf.cast::<c_char>(),
                    capacity,
                    special,
                    ret,
                    err,
                )
            }
        })
    }

    /// Token that begins a text, if the model has one.
    #[doc(alias = "llama_vocab_bos")]
    pub fn bos(&self) -> Option<Token> {
        // SAFETY: the vocabulary is alive.
        some(unsafe { sys::llama_vocab_bos(self.vocab()) })
    }

    /// Token that ends a text, if the model has one.
    #[doc(alias = "llama_vocab_eos")]
    pub fn eos(&self) -> Option<Token> {
        // SAFETY: the vocabulary is alive.
        some(unsafe { sys::llama_vocab_eos(self.vocab()) })
    }

    /// Token that ends a turn of a chat, if the model has one.
    #[doc(alias = "llama_vocab_eot")]
    pub fn eot(&self) -> Option<Token> {
        // SAFETY: the vocabulary is alive.
        some(unsafe { sys::llama_vocab_eot(self.vocab()) })
    }

    /// Whether generation stops at this token. `false` outside the vocabulary.
    #[doc(alias = "llama_vocab_is_eog")]
    pub fn is_eog(&self, token: Token) -> bool {
        self.require_vocab().is_ok()
            && self.require_token(token).is_ok()
            // SAFETY: the vocabulary is alive and has the token.
            && unsafe { sys::llama_vocab_is_eog(self.vocab(), token) }
    }

    /// Formats a chat with the model's template, or with `template` (Jinja, or the name of one that
    /// llama.cpp knows). Messages are pairs of role and content; `add_assistant` opens the answer.
    ///
    /// llama.cpp recognises common templates here and does not run Jinja.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a NUL byte, or when the model has no template and none is
    /// given; [`Error::Llama`] for a template that llama.cpp does not recognise.
    #[doc(alias = "llama_chat_apply_template")]
    pub fn chat_prompt(
        &self,
        template: Option<&str>,
        messages: &[(&str, &str)],
        add_assistant: bool,
    ) -> Result<String> {
        let template = match template {
            Some(text) => text.to_owned(),
            None => self.chat_template().ok_or_else(|| {
                Error::invalid("the model has no chat template; give one, such as `chatml`")
            })?,
        };
        let template = ffi::c_string("the template", template)?;
        let texts = messages
            .iter()
            .map(|&(role, content)| {
                Ok((
                    ffi::c_string("the role", role)?,
                    ffi::c_string("the message", content)?,
                ))
            })
            .collect::<Result<Vec<_>>>()?;
        let chat: Vec<_> = texts
            .iter()
            .map(|(role, content)| sys::llama_chat_message {
                role: role.as_ptr(),
                content: content.as_ptr(),
            })
            .collect();
        let mut buf = vec![0u8; 1024];
        loop {
            let mut ret = 0;
            let length = ffi::c_len("the prompt's length in bytes", buf.len())?;
            let logged = ffi::call(|err| {
                // SAFETY: all texts are NUL-terminated and outlive the call; the buffer is as long
                // as said.
                unsafe {
                    sys::rys_chat_apply_template(
                        template.as_ptr(),
                        chat.as_ptr(),
                        chat.len(),
                        add_assistant,
                        buf.as_mut_ptr().cast::<c_char>(),
                        length,
                        &mut ret,
                        err,
                    )
                }
            });
            match (logged, usize::try_from(ret)) {
                (Ok(_), Ok(n)) if n <= buf.len() => {
                    buf.truncate(n);
                    return Ok(String::from_utf8_lossy(&buf).into_owned());
                }
                (Ok(_), Ok(n)) => buf.resize(n, 0),
                (Ok(_), Err(_)) => {
                    return Err(Error::Llama {
                        call: "llama_chat_apply_template",
                        reason: "the template is not one that llama.cpp recognises".to_owned(),
                    });
                }
                (Err(reason), _) => {
                    return Err(Error::Llama {
                        call: "llama_chat_apply_template",
                        reason,
                    });
                }
            }
        }
    }

    pub(crate) fn require_token(&self, token: Token) -> Result<()> {
        let n = self.n_vocab();
        if usize::try_from(token).is_ok_and(|t| t < n) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "token {token} is not in the vocabulary; allowed are 0..{n}"
        )))
    }

    fn require_vocab(&self) -> Result<()> {
        // SAFETY: the vocabulary is alive.
        if unsafe { sys::llama_vocab_type(self.vocab()) } == sys::LLAMA_VOCAB_TYPE_NONE {
            return Err(Error::invalid(
                "the model has no vocabulary; work with token numbers",
            ));
        }
        Ok(())
    }
}

fn some(token: Token) -> Option<Token> {
    (token != sys::LLAMA_TOKEN_NULL).then_some(token)
}
