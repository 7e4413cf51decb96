//! Names with brackets: `r[0-2]n[0-5]` stands for 18 names; `{1}` is the value the first bracket took.

/// A name and the values its brackets took.
pub type Expanded = (String, Vec<String>);

/// All names a pattern stands for, the last bracket running fastest.
///
/// # Errors
/// What is wrong with it and what is accepted.
pub fn expand(pattern: &str) -> Result<Vec<Expanded>, String> {
    let mut all: Vec<Expanded> = vec![(String::new(), Vec::new())];
    let mut rest = pattern;
    while let Some(open) = rest.find('[') {
        let (before, after) = rest.split_at(open);
        let close = after.find(']').ok_or_else(|| wrong(pattern, "a bracket is not closed"))?;
        let values = values(&after[1..close]).ok_or_else(|| wrong(pattern, "a bracket holds no range or list"))?;
        all = all
            .into_iter()
            .flat_map(|(name, taken)| {
                values.iter().map(move |value| {
                    let mut taken = taken.clone();
                    taken.push(value.clone());
                    (format!("{name}{before}{value}"), taken)
                })
            })
            .collect();
        rest = &after[close + 1..];
    }
    for (name, _) in &mut all {
        name.push_str(rest);
    }
    Ok(all)
}

fn wrong(pattern: &str, what: &str) -> String {
    format!("{pattern:?}: {what}; write n[0-7], n[00-15] or n[a,b,c]")
}

/// `0-2,5,07-09` as single values; bounds with a leading zero keep their width.
fn values(list: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for part in list.split(',').map(str::trim) {
        match part.split_once('-') {
            None if !part.is_empty() => all.push(part.to_owned()),
            None => return None,
            Some((first, last)) => {
                let (from, to): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
                if from > to || to - from > 1_000_000 {
                    return None;
                }
                let width = if first.len() > 1 && first.starts_with('0') { first.len() } else { 0 };
                all.extend((from..=to).map(|n| format!("{n:0width$}")));
            }
        }
    }
    Some(all)
}

/// A text with `{1}`, `{2}`… replaced by the values of the brackets.
///
/// # Errors
/// If it names a bracket that the pattern does not have.
pub fn fill(text: &str, values: &[String]) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let number = rest[open + 1..].find('}').map(|close| (&rest[open + 1..open + 1 + close], open + close + 2));
        let Some((number, next)) = number.filter(|(n, _)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        else {
            filled.push_str(&rest[..=open]);
            rest = &rest[open + 1..];
            continue;
        };
        let value = number.parse::<usize>().ok().and_then(|n| values.get(n.checked_sub(1)?));
        let value = value.ok_or_else(|| format!("{{{number}}} names no bracket: `names` has {}", values.len()))?;
        filled.push_str(&rest[..open]);
        filled.push_str(value);
        rest = &rest[next..];
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pattern: &str) -> Vec<String> {
        expand(pattern).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn brackets_multiply_and_keep_their_width() {
        assert_eq!(names("r[0-1]n[0-2]"), ["r0n0", "r0n1", "r0n2", "r1n0", "r1n1", "r1n2"]);
        assert_eq!(names("n[08-10]x"), ["n08x", "n09x", "n10x"]);
        assert_eq!(names("n[a,c,1-2]"), ["na", "nc", "n1", "n2"]);
        assert_eq!(names("plain"), ["plain"]);
    }

    #[test]
    fn values_of_brackets_fill_texts() {
        let (_, taken) = expand("r[3-3]n[7-7]").unwrap().remove(0);
        assert_eq!(fill("rack-{1}-{2}{x}", &taken).unwrap(), "rack-3-7{x}");
        assert!(fill("{3}", &taken).unwrap_err().contains("`names` has 2"));
    }

    #[test]
    fn bad_patterns_say_what_to_write() {
        for bad in ["n[0-", "n[]", "n[5-2]", "n[a-b]"] {
            assert!(expand(bad).unwrap_err().contains("write n[0-7]"), "{bad}");
        }
    }
}
