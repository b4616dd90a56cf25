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

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, ORIGIN,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::Server;
use crate::audit::Entry;
use crate::users::{Role, TokenHolder, User};

/// Why a request is refused.
type Refused = (StatusCode, &'static str);

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
pub async fn guard(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let asked = guard.asked(&request);
    let allowed = guard.allowed(&request);
    let cookie = guard.new_cookie(&request, allowed.is_ok());
    let user = allowed.as_ref().map(|user| user.name.clone()).unwrap_or_default();
    let mut response = match allowed {
        Err((status, text)) => (status, Json(json!({ "error": text }))).into_response(),
        Ok(user) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
    };
    guard.note(asked, user, response.status());
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
    if let Some(cookie) = cookie {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}

impl Guard {
    /// Who asks, if that may be asked; else why not.
    fn allowed(&self, request: &Request) -> Result<Arc<User>, Refused> {
        self.refuse_foreign(request)?;
        let user = self.who(request)?;
        let path = request.uri().path();
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        let is_session = ["/api/login", "/api/logout"].contains(&path);
        if changes && !is_session && user.role == Role::Look {
            return Err((StatusCode::FORBIDDEN, "your token may look, and nothing else"));
        }
        Ok(user)
    }

    /// What comes from another site, under another name, or is nothing that a page of ours sends.
    fn refuse_foreign(&self, request: &Request) -> Result<(), Refused> {
        let headers = request.headers();
        let host = text(headers, HOST.as_str()).unwrap_or_default();
        if !self.is_own_host(host) {
            return Err((StatusCode::MISDIRECTED_REQUEST, "this server has another name"));
        }
        let foreign = text(headers, ORIGIN.as_str())
            .is_some_and(|origin| !self.is_own_origin(origin, host))
            || text(headers, "sec-fetch-site").is_some_and(|site| site == "cross-site");
        if foreign {
            return Err((StatusCode::FORBIDDEN, "other sites may not ask"));
        }
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        // Neither kind can be sent by a page of another site without asking first.
        let kind = text(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        let is_file = request.uri().path().starts_with("/api/files/");
        let wanted = if is_file { "application/octet-stream" } else { "application/json" };
        let is_bare = is_file && *request.method() == Method::DELETE;
        if changes && !is_bare && !kind.starts_with(wanted) {
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "only JSON is taken"));
        }
        Ok(())
    }

    /// Who asks. The page itself is no secret; without a token it asks for one.
    fn who(&self, request: &Request) -> Result<Arc<User>, Refused> {
        let is_page = ["/", "/app.js", "/app.css"].contains(&request.uri().path());
        if is_page || !self.has_tokens() {
            return Ok(Arc::default());
        }
        let peer = self.peer(request);
        let (now, most) = (self.began.elapsed(), self.server.options.max_wrong_tokens);
        if self.guesses.must_wait(peer, most, now) {
            let text = "too many wrong tokens: wait a minute";
            return Err((StatusCode::TOO_MANY_REQUESTS, text));
        }
        let given = given_tokens(request);
        for token in &given {
            match self.known(token) {
                TokenHolder::Person(user) => return Ok(user),
                TokenHolder::Expired => {
                    return Err((StatusCode::UNAUTHORIZED, "this token has expired"));
                }
                TokenHolder::Nobody => (),
            }
        }
        // Who has none yet has not guessed.
        if !given.is_empty() {
            self.guesses.wrong(peer, now);
        }
        Err((StatusCode::UNAUTHORIZED, "a token is needed: log in, or add ?token=… to the address"))
    }

    fn has_tokens(&self) -> bool {
        self.server.options.token.is_some() || self.server.users.is_some()
    }

    fn known(&self, token: &str) -> TokenHolder {
        match (&self.server.users, &self.server.options.token) {
            (Some(users), _) => users.who(token, crate::jobs::now()),
            (None, Some(own)) if same(token, own) => TokenHolder::Person(Arc::default()),
            _ => TokenHolder::Nobody,
        }
    }

    /// The address that a request came from, as a proxy says it if there is one.
    fn peer(&self, request: &Request) -> IpAddr {
        let direct = request.extensions().get::<Peer>().map_or(self.bound.ip(), |peer| peer.0);
        let told = text(request.headers(), "x-forwarded-for").filter(|_| self.server.options.proxy);
        // The last is the proxy's own word; what stands before it, anybody can write.
        let last = told.and_then(|told| told.rsplit(',').next()?.trim().parse().ok());
        last.unwrap_or(direct)
    }

    /// Whether a page is ours: of the host that was asked, by TLS too where a proxy has it.
    fn is_own_origin(&self, origin: &str, host: &str) -> bool {
        let plain = origin.strip_prefix("http://");
        let secure = origin.strip_prefix("https://").filter(|_| self.server.options.proxy);
        plain.or(secure) == Some(host)
    }

    /// What was asked, for the list of who did what: if it changes something.
    fn asked(&self, request: &Request) -> (bool, Entry) {
        let (method, path) = (request.method(), request.uri().path());
        let changes = !matches!(*method, Method::GET | Method::HEAD);
        // Checks are no changes, and there are very many.
        let counts = changes && !["/api/check", "/api/set"].contains(&path);
        let path: String = path.chars().take(200).collect();
        let entry = Entry {
            at: crate::jobs::now(),
            user: String::new(),
            from: self.peer(request).to_string(),
            asked: format!("{method} {path}"),
            status: 0,
        };
        (counts, entry)
    }

    /// Writes down what was changed or refused.
    fn note(&self, (counts, entry): (bool, Entry), user: String, status: StatusCode) {
        let is_refused = [401, 403, 421, 429].contains(&status.as_u16());
        if counts || is_refused {
            // A disk that is full keeps nobody from looking.
            let _ = self.server.audit.note(&Entry { user, status: status.as_u16(), ..entry });
        }
    }

    /// Whether a client named this server as it is known. A page that had its own name rebound to
    /// this machine's address names that; an address as such cannot be rebound.
    fn is_own_host(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => (name, port),
            _ => (host, ""),
        };
        let is_known = self.server.options.hosts.iter().any(|own| own.eq_ignore_ascii_case(name));
        if !self.has_tokens() {
            let is_loopback = ["127.0.0.1", "localhost", "[::1]"].contains(&name);
            return is_known || (is_loopback && port == self.bound.port().to_string());
        }
        let address = name.trim_start_matches('[').trim_end_matches(']');
        is_known || name == "localhost" || address.parse::<IpAddr>().is_ok()
    }

    /// A client that logs in, or named a token in the address, gets it as a cookie; one that logs
    /// out has it taken away.
    fn new_cookie(&self, request: &Request, allowed: bool) -> Option<HeaderValue> {
        let is_secure = text(request.headers(), "x-forwarded-proto") == Some("https");
        let secure = if is_secure && self.server.options.proxy { "; Secure" } else { "" };
        let kept = format!("; HttpOnly; SameSite=Strict; Path=/{secure}");
        if request.uri().path() == "/api/logout" {
            return HeaderValue::from_str(&format!("fatflow=; Max-Age=0{kept}")).ok();
        }
        let is_login = request.uri().path() == "/api/login";
        let bearer = bearer(request.headers()).filter(|_| is_login);
        let token = bearer.or_else(|| query_token(request)).filter(|_| allowed)?;
        let is_known = matches!(self.known(token), TokenHolder::Person(_));
        is_known.then(|| HeaderValue::from_str(&format!("fatflow={token}{kept}")).ok()).flatten()
    }
}

/// Every token that a request carries.
fn given_tokens(request: &Request) -> Vec<&str> {
    let headers = request.headers();
    let cookies = text(headers, COOKIE.as_str()).unwrap_or_default();
    let cookie = cookies.split("; ").find_map(|cookie| cookie.strip_prefix("fatflow="));
    [bearer(headers), query_token(request), cookie].into_iter().flatten().collect()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    text(headers, AUTHORIZATION.as_str())?.strip_prefix("Bearer ")
}

fn query_token(request: &Request) -> Option<&str> {
    request.uri().query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Compares in a time that does not tell how much of the token was right.
pub(crate) fn same(given: &str, token: &str) -> bool {
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
