//! Who may use a team's server: a token for each person, what it allows, and until when.
//!
//! They stand in a TOML file, which is read again when it changes: who is taken out of it is
//! refused from then on. It holds digests of tokens, never tokens.
//!
//! ```toml
//! [[users]]
//! name = "ana"
//! token = "sha256-…"       # as `fatflow serve --new-user ana` writes it
//! role = "run"             # or "look"
//! expires = 2027-01-31     # the last day; without it, never
//! waiting = 4              # runs that wait or compute at once
//! children = 1             # of which so many compute
//! memory = "8GiB"          # of one run
//! questions = 8            # checks at once
//! private = true           # others do not see these runs
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use units::Bytes;

/// What a person may do.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look at runs.
    Look,
    /// Look, check, run, and keep files.
    #[default]
    Run,
}

/// A person.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// What the person is called; empty where a server has no users.
    pub name: String,
    /// The digest of the person's token.
    #[serde(skip_serializing)]
    token: String,
    /// What the person may do.
    #[serde(default)]
    pub role: Role,
    /// The last day on which the token is good.
    expires: Option<toml::value::Datetime>,
    /// Runs that wait or compute at once.
    pub waiting: Option<usize>,
    /// Runs that compute at once.
    pub children: Option<usize>,
    /// Memory of one run.
    pub memory: Option<Bytes>,
    /// Checks at once.
    pub questions: Option<usize>,
    /// Whether others do not see this person's runs.
    #[serde(default)]
    pub private: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    users: Vec<User>,
}

/// What a token says of who has it.
#[derive(Clone, Debug)]
pub enum TokenHolder {
    /// A person.
    Person(Arc<User>),
    /// A person whose token is no longer good.
    Expired,
    /// Nobody.
    Nobody,
}

/// The people of a server.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    read: Mutex<(Option<SystemTime>, Vec<Arc<User>>)>,
}

impl Users {
    /// Reads the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let read = Mutex::new((changed(path), read(path)?));
        Ok(Self { path: path.to_owned(), read })
    }

    /// Everybody, as the file has it now. A file that cannot be read lets nobody in.
    fn all(&self) -> Vec<Arc<User>> {
        let mut known = self.read.lock().expect("no holder panics");
        let now = changed(&self.path);
        if now.is_none() || known.0 != now {
            *known = (now, read(&self.path).unwrap_or_default());
        }
        known.1.clone()
    }

    /// Who has a token, at so many seconds since 1970.
    pub fn who(&self, token: &str, now: u64) -> TokenHolder {
        let digest = digest(token);
        let found = self.all().into_iter().find(|user| crate::guard::same(&user.token, &digest));
        match found {
            None => TokenHolder::Nobody,
            Some(user) if user.is_expired(now) => TokenHolder::Expired,
            Some(user) => TokenHolder::Person(user),
        }
    }

    /// Whether others may see this person's runs.
    pub fn is_open(&self, name: &str) -> bool {
        !self.all().iter().any(|user| user.name == name && user.private)
    }
}

impl User {
    /// Whether a run of somebody is this person's own; those of nobody are everybody's.
    pub fn owns(&self, owner: &str) -> bool {
        owner.is_empty() || owner == self.name
    }

    fn is_expired(&self, now: u64) -> bool {
        let Some(date) = self.expires.as_ref().and_then(|at| at.date) else { return false };
        // Until the end of that day, in UTC.
        end_of_day(date.year.into(), date.month.into(), date.day.into()) <= now
    }
}

/// Seconds since 1970 at the end of a day (Howard Hinnant's days_from_civil).
fn end_of_day(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    (days + 1).saturating_sub(719_468) * 86_400
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

fn digest(token: &str) -> String {
    report::digest::source(token).trim_matches('\'').to_owned()
}

fn read(path: &Path) -> io::Result<Vec<Arc<User>>> {
    let wrong = |why: String| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let file: File = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    for (at, user) in file.users.iter().enumerate() {
        let name = &user.name;
        if !is_name(name) {
            return Err(wrong(format!("`{name}` is no name: letters, digits, `.`, `_`, `-`")));
        }
        if file.users[..at].iter().any(|other| other.name == *name) {
            return Err(wrong(format!("`{name}` stands there twice")));
        }
        if user.token.len() != 51 || !user.token.starts_with("sha256-") {
            let how = format!("the token of `{name}` is a digest: fatflow serve --new-user {name}");
            return Err(wrong(how));
        }
        if user.expires.as_ref().is_some_and(|at| at.date.is_none_or(|date| date.year < 1971)) {
            return Err(wrong(format!("`{name}` expires on a day, such as 2027-01-31")));
        }
    }
    Ok(file.users.into_iter().map(Arc::new).collect())
}

/// Whether a name is plain enough to be a folder's.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.len() <= 100
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain)
}

/// Adds a person to the file and returns the token, which stands nowhere else.
pub fn add(path: &Path, name: &str, role: Role, expires: Option<&str>) -> io::Result<String> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    let old = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let expires = match expires {
        None => String::new(),
        Some(day) => match day.parse::<toml::value::Datetime>() {
            Ok(at) if at.date.is_some() && at.time.is_none() => format!("expires = {day}\n"),
            _ => return Err(wrong("write the last day like 2027-01-31")),
        },
    };
    let mut bytes = [0; 24];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let role = if role == Role::Run { "run" } else { "look" };
    let gap = if old.is_empty() { "" } else { "\n" };
    let digest = digest(&token);
    let text = format!(
        "{old}{gap}[[users]]\nname = \"{name}\"\ntoken = \"{digest}\"\nrole = \"{role}\"\n{expires}"
    );
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    let checked = read(&beside).and_then(|_| std::fs::rename(&beside, path));
    if checked.is_err() {
        // It may be gone already.
        let _ = std::fs::remove_file(&beside);
    }
    checked.map(|()| token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_known_expire_and_are_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        let ana = add(&path, "ana", Role::Run, None).unwrap();
        let bob = add(&path, "bob", Role::Look, Some("2026-02-28")).unwrap();
        assert!(add(&path, "ana", Role::Run, None).is_err(), "a name stands there once");
        assert!(add(&path, "../ana", Role::Run, None).is_err());
        assert!(add(&path, "eve", Role::Run, Some("tomorrow")).is_err());
        let users = Users::open(&path).unwrap();
        let last = end_of_day(2026, 2, 28);
        assert_eq!(last, 1_772_323_200, "the first of March");
        let name = |token: &str, now| match users.who(token, now) {
            TokenHolder::Person(user) => user.name.clone(),
            TokenHolder::Expired => "expired".to_owned(),
            TokenHolder::Nobody => "nobody".to_owned(),
        };
        assert_eq!([name(&ana, last), name(&bob, last - 1)], ["ana", "bob"]);
        assert_eq!([name(&bob, last), name("forged", 0)], ["expired", "nobody"]);
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&ana), "no token is kept");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(name(&ana, 0), "nobody", "without a file nobody is let in");
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        for (text, why) in [
            ("[[users]]\nname = \"a\"\ntoken = \"plain\"\n", "digest"),
            ("[[users]]\nname = \"a b\"\ntoken = \"\"\n", "no name"),
            ("[[users]]\nname = \"a\"\ntoken = \"\"\nrole = \"root\"\n", "role"),
            ("[[user]]\n", "unknown field"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Users::open(&path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
