package docs

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// inventedNouns are terms that the glossary has replaced by the field's
// words. They must not come back.
var inventedNouns = map[string]string{
	"attendant": "rollback detector",
	"courier":   "webhook sender",
	"desk":      "account queue",
	"docket":    "lease batch",
	"linger":    "refusal grace period",
	"tenure":    "session record",
	"witness":   "commit marker",
	"witnesses": "commit markers",
}

// inventedNames are words that are fine in a sentence, but no names in code.
var inventedNames = map[string]string{
	"calm": "escrow policy",
	"roll": "replica membership",
	"stay": "pending request",
}

var (
	word = regexp.MustCompile(`[A-Za-z]+`)
	// whoWhat finds sentences that begin with a noun clause.
	whoWhat = regexp.MustCompile(`(?m)^\s*(?:// )(?:What|Who) (?:is|was|has|can|could|comes|came|goes|waits|asks) `)
	tells   = regexp.MustCompile(`\btells? whether\b`)
)

// words splits an identifier into its words in lower case.
func words(name string) []string {
	var found []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || (unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1])) {
			found = append(found, strings.ToLower(strings.Trim(string(runes[start:i]), "_")))
			start = i
		}
	}
	return found
}

func TestWordsOfAnIdentifier(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"newDocket": "new docket", "lease_ops": "lease ops", "HTTPStay": "httpstay", "x": "x"} {
		if got := strings.Join(words(name), " "); got != want {
			t.Errorf("words of %s: %q; want %q", name, got, want)
		}
	}
}

// TestInventedWordsAreGone: code, SQL, documents and messages use the words of
// the glossary.
func TestInventedWordsAreGone(t *testing.T) {
	t.Parallel()
	betterOf := map[string]string{} // by the words of the files, each of which occurs often
	for _, path := range files(t, ".go", ".sql", ".md", ".yaml", ".tpl", ".txt", ".sh") {
		if strings.HasSuffix(path, "scripts/docs/language_test.go") || strings.Contains(path, "testdata") {
			continue
		}
		text := read(t, path)
		for i, line := range strings.Split(text, "\n") {
			for _, w := range word.FindAllString(line, -1) {
				if w == "SetLinger" { // of net.TCPConn
					continue
				}
				better, known := betterOf[w]
				if !known {
					for _, part := range words(w) {
						better = cmp.Or(better, inventedNouns[part])
					}
					betterOf[w] = better
				}
				if better != "" {
					t.Errorf("%s:%d: %q: the glossary's term is %q", path, i+1, w, better)
				}
			}
			if strings.HasSuffix(path, ".go") && (whoWhat.MatchString(line) || tells.MatchString(line)) {
				t.Errorf("%s:%d: begin with the subject, and write \"reports whether\": %s", path, i+1, strings.TrimSpace(line))
			}
		}
	}
}

// TestInventedNamesAreGone checks the names that Go code declares.
func TestInventedNamesAreGone(t *testing.T) {
	t.Parallel()
	for _, path := range files(t, ".go") {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(path, "scripts/docs/") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			for _, part := range words(id.Name) {
				if better := inventedNames[part]; better != "" {
					t.Errorf("%s: %s: the glossary's term is %q", path, id.Name, better)
				}
			}
			return true
		})
	}
}
