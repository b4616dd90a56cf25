//! Who may ask: the host that was named, the page that asks, the token; and every answer's headers.
//!
//! A page of some other site can make a browser send requests to loopback. It cannot choose the
//! `Host` header (a rebound name is told apart), it announces itself in `Origin` and
//! `Sec-Fetch-Site`, and it cannot send JSON without asking first; all three are checked, with a
//! token too. An address that guesses tokens has to wait.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, ORIGIN,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Server;

/// What the page may do: load its own files, ask its own server, show its own reports.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; frame-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'self'";

/// How long wrong tokens are remembered.
const MINUTE: Duration = Duration::from_secs(60);
/// Addresses whose wrong tokens are remembered.
const MAX_ADDRESSES: usize = 4096;

/// The address that a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Wrong tokens, by address: how many, and since when.
#[derive(Debug, Default)]
pub struct Guesses(Mutex<BTreeMap<IpAddr, (u32, Duration)>>);

impl Guesses {
    /// Whether an address has guessed too often and has to wait.
    fn must_wait(&self, address: IpAddr, most: u32, now: Duration) -> bool {
        let known = self.0.lock().expect("no holder panics");
        known
            .get(&address)
            .is_some_and(|(count, since)| most <= *count && now.saturating_sub(*since) < MINUTE)
    }

    /// Remembers a wrong token.
    fn wrong(&self, address: IpAddr, now: Duration) {
        let mut known = self.0.lock().expect("no holder panics");
        if MAX_ADDRESSES <= known.len() {
            known.retain(|_, (_, since)| now.saturating_sub(*since) < MINUTE);
        }
        let is_full = MAX_ADDRESSES <= known.len();
        let unknown = IpAddr::from([0, 0, 0, 0]);
        // An attacker with very many addresses shares one count with all the others.
        let key = if is_full && !known.contains_key(&address) { unknown } else { address };
        let (count, since) = known.entry(key).or_insert((0, now));
        if MINUTE <= now.saturating_sub(*since) {
            (*count, *since) = (0, now);
        }
        *count = count.saturating_add(1);
    }
}

/// What every guard knows.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Wrong tokens.
    pub guesses: Arc<Guesses>,
    /// Since when it counts time.
    pub began: std::time::Instant,
    /// What all requests share.
    pub server: Arc<Server>,
    /// The address that was bound.
    pub bound: SocketAddr,
}

/// Lets a request through, or says why not; puts the headers on every answer.
pub async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let refusal = guard.refusal(&request);
    let token = guard.new_cookie(&request);
    let mut response = match refusal {
        Some((status, text)) => (status, text).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    let fixed = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "SAMEORIGIN"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    if let Some(cookie) = token {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}

impl Guard {
    fn refusal(&self, request: &Request) -> Option<(StatusCode, &'static str)> {
        let headers = request.headers();
        let host = text(headers, HOST.as_str()).unwrap_or_default();
        if !self.is_own_host(host) {
            return Some((StatusCode::MISDIRECTED_REQUEST, "this server has another name\n"));
        }
        let foreign = text(headers, ORIGIN.as_str())
            .is_some_and(|origin| origin != format!("http://{host}"))
            || text(headers, "sec-fetch-site").is_some_and(|site| site == "cross-site");
        if foreign {
            return Some((StatusCode::FORBIDDEN, "other sites may not ask\n"));
        }
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        let json = text(headers, CONTENT_TYPE.as_str())
            .is_some_and(|kind| kind.starts_with("application/json"));
        if changes && !json {
            return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "only JSON is taken\n"));
        }
        let Some(token) = &self.server.options.token else { return None };
        let peer = request.extensions().get::<Peer>().map_or(self.bound.ip(), |peer| peer.0);
        let (now, most) = (self.began.elapsed(), self.server.options.max_wrong_tokens);
        if self.guesses.must_wait(peer, most, now) {
            let text = "too many wrong tokens: wait a minute\n";
            return Some((StatusCode::TOO_MANY_REQUESTS, text));
        }
        let given = given_tokens(request);
        if given.iter().any(|given| same(given, token)) {
            return None;
        }
        // Who has none yet has not guessed.
        if !given.is_empty() {
            self.guesses.wrong(peer, now);
        }
        Some((StatusCode::UNAUTHORIZED, "add ?token=… to the address once\n"))
    }

    /// Whether a client named this server as it is known. A page that had its own name rebound to
    /// this machine's address names that; an address as such cannot be rebound.
    fn is_own_host(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => (name, port),
            _ => (host, ""),
        };
        let is_known = self.server.options.hosts.iter().any(|own| own.eq_ignore_ascii_case(name));
        if self.server.options.token.is_none() {
            let is_loopback = ["127.0.0.1", "localhost", "[::1]"].contains(&name);
            return is_known || (is_loopback && port == self.bound.port().to_string());
        }
        let address = name.trim_start_matches('[').trim_end_matches(']');
        is_known || name == "localhost" || address.parse::<IpAddr>().is_ok()
    }

    /// A client that named the token in the address gets it as a cookie.
    fn new_cookie(&self, request: &Request) -> Option<HeaderValue> {
        let token = self.server.options.token.as_ref()?;
        let given = query_token(request)?;
        let cookie = format!("fatflow={token}; HttpOnly; SameSite=Strict; Path=/");
        same(given, token).then(|| HeaderValue::from_str(&cookie).ok()).flatten()
    }
}

/// Every token that a request carries.
fn given_tokens(request: &Request) -> Vec<&str> {
    let headers = request.headers();
    let bearer = text(headers, AUTHORIZATION.as_str()).and_then(|v| v.strip_prefix("Bearer "));
    let cookies = text(headers, COOKIE.as_str()).unwrap_or_default();
    let cookie = cookies.split("; ").find_map(|cookie| cookie.strip_prefix("fatflow="));
    [bearer, cookie, query_token(request)].into_iter().flatten().collect()
}

fn query_token(request: &Request) -> Option<&str> {
    request.uri().query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Compares in a time that does not tell how much of the token was right.
fn same(given: &str, token: &str) -> bool {
    let bytes = given.bytes().zip(token.bytes());
    given.len() == token.len() && bytes.fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_guesses_waits_a_minute_and_others_do_not() {
        let guesses = Guesses::default();
        let (bad, good) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let at = Duration::from_secs;
        for second in 0..10 {
            assert!(!guesses.must_wait(bad, 10, at(second)));
            guesses.wrong(bad, at(second));
        }
        assert!(guesses.must_wait(bad, 10, at(10)) && !guesses.must_wait(good, 10, at(10)));
        assert!(guesses.must_wait(bad, 10, at(59)) && !guesses.must_wait(bad, 10, at(60)));
    }

    #[test]
    fn ten_thousand_addresses_take_bounded_memory() {
        let guesses = Guesses::default();
        for number in 0..10_000_u32 {
            guesses.wrong(IpAddr::from(number.to_be_bytes()), Duration::ZERO);
        }
        assert!(guesses.0.lock().unwrap().len() <= MAX_ADDRESSES + 1);
    }

    #[test]
    fn only_equal_tokens_are_the_same() {
        assert!(same("0123456789abcdef", "0123456789abcdef"));
        assert!(!same("0123456789abcdeg", "0123456789abcdef"));
        assert!(!same("", "0123456789abcdef") && !same("0123456789abcdef0", "0123456789abcdef"));
    }
}
