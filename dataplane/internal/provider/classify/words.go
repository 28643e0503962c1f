package classify

import (
	"strings"
	"unicode"
)

// sentenceBreak marks the end of a sentence in a list of words. A gap in a pattern does
// not extend over it, because a subject and its predicate are in one sentence.
const sentenceBreak = ""

// maxWordsPerText bounds the work for a hostile or very long message.
const maxWordsPerText = 2000

// splitWords splits a text into lower-case words. Different spellings give the same words: max_tokens, maxTokens and
// "max tokens" are two words each, "doesn't" is doesnt, and the French "l'image" is two words. Every Han character is one word, because Chinese does not
// separate words, and a change of script begins a word, for Japanese. The letter ё is е.
func splitWords(s string) []string {
	var (
		words []string
		cur   strings.Builder
		runes = []rune(s)
	)

	flush := func() {
		if cur.Len() > 0 {
			words = append(words, cur.String())
			cur.Reset()
		}
	}

	stop := func() {
		flush()
		if n := len(words); n > 0 && words[n-1] != sentenceBreak {
			words = append(words, sentenceBreak)
		}
	}

	for i, r := range runes {
		if len(words) >= maxWordsPerText {
			break
		}
		switch {
		case unicode.Is(unicode.Han, r):
			flush()
			words = append(words, string(r))
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			if startsWord(runes, i) || changesScript(runes, i) {
				flush()
			}
			cur.WriteRune(fold(r))
		case r == '\'' || r == '’':
			if !insideWord(runes, i) || isElided(cur.String()) {
				flush()
			}
		case r == '\n' || r == '。' || r == '！' || r == '；' || r == '!' || r == ';' || r == '?':
			stop()
		case r == '.':
			if endsSentence(runes, i) {
				stop()
			} else {
				flush()
			}
		default:
			flush()
		}
	}

	flush()
	return words
}

// fold returns a letter in lower case. Russian is written with or without the dots of ё.
func fold(r rune) rune {
	if r = unicode.ToLower(r); r == 'ё' {
		return 'е'
	}
	return r
}

// startsWord reports whether an upper-case letter begins a word in camel case: tokenLimit
// is two words and APIKey is api key, but APIs is one word.
func startsWord(runes []rune, i int) bool {
	if i == 0 || !unicode.IsUpper(runes[i]) {
		return false
	}
	if unicode.IsLower(runes[i-1]) {
		return true
	}
	if !unicode.IsUpper(runes[i-1]) || i+1 >= len(runes) || !unicode.IsLower(runes[i+1]) {
		return false
	}
	plural := runes[i+1] == 's' && (i+2 >= len(runes) || !unicode.IsLetter(runes[i+2]))
	return !plural
}

// changesScript reports whether a letter begins a word because of its script: Japanese writes words of Hiragana, Katakana
// and Latin letters without blanks between them, and Korean adds its particles to Latin words. The long-vowel mark belongs to
// either script.
func changesScript(runes []rune, i int) bool {
	if i == 0 || !unicode.IsLetter(runes[i-1]) || runes[i] == 'ー' {
		return false
	}
	before := runes[i-1]
	if before == 'ー' {
		return unicode.Is(unicode.Hiragana, runes[i])
	}
	changes := func(script *unicode.RangeTable) bool {
		return unicode.Is(script, before) != unicode.Is(script, runes[i])
	}
	return changes(unicode.Hiragana) || changes(unicode.Katakana) || changes(unicode.Hangul)
}

func insideWord(runes []rune, i int) bool {
	return i > 0 && i+1 < len(runes) && unicode.IsLetter(runes[i-1]) && unicode.IsLetter(runes[i+1])
}

// isElided reports whether the letters before an apostrophe are a word of their own, as the article in the French l'image.
func isElided(word string) bool {
	switch word {
	case "l", "d", "n", "s", "j", "c", "qu", "dell", "all", "un":
		return true
	}
	return false
}

// endsSentence reports whether a dot is a full stop, not part of a path, number or name.
func endsSentence(runes []rune, i int) bool {
	return i+1 >= len(runes) || unicode.IsSpace(runes[i+1]) || unicode.IsUpper(runes[i+1]) && i > 0 && unicode.IsLower(runes[i-1])
}
