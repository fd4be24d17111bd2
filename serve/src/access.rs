//! Who may ask: the one-time token, the cookie that it is exchanged for, and the checks of every request.
//!
//! | attack | answer |
//! |---|---|
//! | another user or program of the machine | only who has the token gets the cookie |
//! | a page in the same browser that sends requests here | `SameSite=Strict`, `Origin`, `Sec-Fetch-Site`; no CORS |
//! | a name that is made to point here (DNS rebinding) | `Host` must be an address, localhost, or a name given beforehand |
//! | a link, an image or a form that changes something | only POST changes anything, and needs an `Origin` |
//! | a script in a file name | nothing but own scripts may run (content policy); texts are text nodes |

use crate::request::{Asked, Method};
use pcp_core::error::{Error, Result};
use std::net::IpAddr;
use std::sync::Mutex;

/// Secrets and names of a server.
pub struct Access {
    /// The token that has not been used yet.
    token: Mutex<Option<String>>,
    /// The value of the cookie.
    session: String,
    port: u16,
    /// Names that may be asked for beside addresses and localhost.
    hosts: Vec<String>,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer it.
    Admit,
    /// Answer with the cookie: it brought the token.
    Welcome,
    /// Refuse it, and say why.
    Refuse(&'static str),
}

impl Access {
    /// New secrets for a server on `port`.
    pub fn new(port: u16, hosts: Vec<String>) -> Result<Access> {
        Ok(Access { token: Mutex::new(Some(secret()?)), session: secret()?, port, hosts })
    }

    /// The token, while it is unused.
    pub fn token(&self) -> Option<String> {
        self.token.lock().ok().and_then(|token| token.clone())
    }

    /// Makes a new token; the old one is void, sessions stay.
    pub fn renew(&self) -> Result<String> {
        let new = secret()?;
        if let Ok(mut token) = self.token.lock() {
            *token = Some(new.clone());
        }
        Ok(new)
    }

    /// Cookies are shared by all ports of a host, so that the name has the port.
    fn cookie_name(&self) -> String {
        format!("pcp-{}", self.port)
    }

    /// The header that gives the cookie.
    pub fn cookie(&self) -> String {
        format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.cookie_name(), self.session)
    }

    /// Judges a request by its head. A right token is used up.
    pub fn judge(&self, asked: &Asked) -> Verdict {
        let Some(host) = asked.only("host").filter(|host| self.is_ours(host)) else {
            return Verdict::Refuse("this name is not served here");
        };
        let changes = match asked.method {
            Method::Get | Method::Head => false,
            Method::Post => true,
            Method::Other => return Verdict::Refuse("only GET and POST are answered"),
        };
        let own = format!("http://{host}");
        match asked.all("origin").next() {
            Some(_) if asked.only("origin") != Some(own.as_str()) => {
                return Verdict::Refuse("the request comes from another page");
            }
            None if changes => return Verdict::Refuse("the request does not say which page it comes from"),
            _ => {}
        }
        let token = asked.query("token").filter(|_| asked.path == "/" && !changes);
        // The link may be opened from anywhere: only the token counts. All else is asked for by our own page.
        if token.is_none() && !asked.all("sec-fetch-site").all(|site| matches!(site, "same-origin" | "none")) {
            return Verdict::Refuse("the request comes from another page");
        }
        if let Some(token) = token
            && let Ok(mut own) = self.token.lock()
            && own.as_deref().is_some_and(|own| equal(own, token))
        {
            *own = None;
            return Verdict::Welcome;
        }
        let name = self.cookie_name();
        let cookies = asked.all("cookie").flat_map(|all| all.split(';')).filter_map(|one| one.trim().split_once('='));
        let admitted = cookies.filter(|(key, _)| *key == name).any(|(_, value)| equal(value, &self.session));
        if admitted { Verdict::Admit } else { Verdict::Refuse("open the link that pcp printed; it works once") }
    }

    /// Whether `host` is an address, localhost or a known name, with our port.
    fn is_ours(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
            _ => (host, Some(80)),
        };
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let address = match bare {
            Some(bare) => bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()),
            None => name.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4()),
        };
        port == Some(self.port) && (address || name == "localhost" || self.hosts.iter().any(|known| known == name))
    }
}

/// Compares in a time that does not depend on where two texts differ.
fn equal(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

/// 128 random bits of the operating system, as text.
fn secret() -> Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::file(format!("the operating system gives no random numbers: {e}"), "try again, or on another machine")
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Head;

    fn ask(access: &Access, method: &str, uri: &str, headers: &[(&str, &str)]) -> Verdict {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        match Head::parse(format!("{method} {uri} HTTP/1.1\r\n{lines}\r\n").as_bytes()) {
            Head::Whole(asked, _) => access.judge(&asked),
            Head::Partial | Head::Bad(_) => Verdict::Refuse("it cannot be read"),
        }
    }

    #[test]
    fn the_token_works_once_and_the_cookie_from_then_on() {
        let access = Access::new(8080, vec!["photos.lan".into()]).unwrap();
        let (host, token) = (("host", "127.0.0.1:8080"), access.token().unwrap());
        let refused = |verdict| matches!(verdict, Verdict::Refuse(_));
        assert!(refused(ask(&access, "GET", "/", &[host])));
        assert!(refused(ask(&access, "GET", "/?token=0123", &[host])));
        assert!(
            refused(ask(&access, "GET", &format!("/api/runs?token={token}"), &[host])),
            "only the front page takes it"
        );
        assert!(refused(ask(
            &access,
            "POST",
            &format!("/?token={token}"),
            &[host, ("origin", "http://127.0.0.1:8080")]
        )));
        let link = format!("/?token={token}");
        assert_eq!(ask(&access, "GET", &link, &[host, ("sec-fetch-site", "cross-site")]), Verdict::Welcome);
        assert!(refused(ask(&access, "GET", &link, &[host])), "it was used");
        assert_eq!(access.token(), None);
        let cookie = access.cookie();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap().to_string();
        let both = format!("other=1; {cookie}");
        assert_eq!(ask(&access, "GET", "/api/runs", &[host, ("cookie", &both)]), Verdict::Admit);
        let wrong = format!("{}=ffff", cookie.split('=').next().unwrap());
        assert!(refused(ask(&access, "GET", "/", &[host, ("cookie", &wrong)])));
        let renewed = access.renew().unwrap();
        assert_ne!(renewed, token);
        assert_eq!(ask(&access, "GET", &format!("/?token={renewed}"), &[host]), Verdict::Welcome);
    }

    #[test]
    fn other_hosts_pages_and_methods_are_refused() {
        let access = Access::new(8080, vec!["photos.lan".into()]).unwrap();
        let cookie = access.cookie().split(';').next().unwrap().to_string();
        let with = |method: &str, headers: &[(&str, &str)]| {
            let all: Vec<(&str, &str)> = headers.iter().copied().chain([("cookie", cookie.as_str())]).collect();
            ask(&access, method, "/api/runs", &all)
        };
        for host in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "192.168.1.7:8080", "photos.lan:8080"] {
            assert_eq!(with("GET", &[("host", host)]), Verdict::Admit, "{host}");
            let origin = format!("http://{host}");
            assert_eq!(with("POST", &[("host", host), ("origin", &origin)]), Verdict::Admit, "{host}");
        }
        for host in [
            "evil.example:8080",
            "127.0.0.1:81",
            "127.0.0.1",
            "localhost.evil.example:8080",
            "",
            "[::1",
            "127.0.0.1:8080:8080",
        ] {
            assert_ne!(with("GET", &[("host", host)]), Verdict::Admit, "{host}");
        }
        assert_ne!(with("GET", &[]), Verdict::Admit, "no host");
        let host = ("host", "127.0.0.1:8080");
        assert_ne!(with("GET", &[host, ("host", "evil.example:8080")]), Verdict::Admit, "two hosts");
        assert_ne!(with("POST", &[host]), Verdict::Admit, "no origin");
        for origin in
            ["http://evil.example", "null", "http://127.0.0.1:8081", "https://127.0.0.1:8080", "http://localhost:8080"]
        {
            assert_ne!(with("POST", &[host, ("origin", origin)]), Verdict::Admit, "{origin}");
            assert_ne!(with("GET", &[host, ("origin", origin)]), Verdict::Admit, "{origin}");
        }
        assert_ne!(with("GET", &[host, ("sec-fetch-site", "cross-site")]), Verdict::Admit);
        assert_ne!(
            with("GET", &[host, ("sec-fetch-site", "same-site")]),
            Verdict::Admit,
            "another port of this machine"
        );
        assert_eq!(with("GET", &[host, ("sec-fetch-site", "same-origin")]), Verdict::Admit);
        for method in ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH"] {
            assert_ne!(with(method, &[host, ("origin", "http://127.0.0.1:8080")]), Verdict::Admit, "{method}");
        }
        let elsewhere = ask(&access, "GET", "http://evil.example/api/runs", &[host, ("cookie", &cookie)]);
        assert_ne!(elsewhere, Verdict::Admit, "a whole address in the request line");
    }
}
