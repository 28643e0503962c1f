package gwctl_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/gwctl"
)

// shownLine finds the commands in a document: lines of a block, and texts in backquotes.
var shownLine = regexp.MustCompile("(?m)^(?:    |\\t)?(?:\\S+/)?gwctl (\\S.*)$|`gwctl ([^`\\n]+)`")

// wordsOf splits a command line at spaces outside of quotes. It ends at a comment, a pipe or a
// redirection.
func wordsOf(line string) []string {
	var words []string
	word, quote, began := "", rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, began = r, true
		case quote == 0 && strings.ContainsRune("#|<>;&", r) && !began:
			return words
		case quote == 0 && r == ' ':
			if began {
				words = append(words, word)
			}
			word, began = "", false
		default:
			word, began = word+string(r), true
		}
	}
	if began {
		words = append(words, word)
	}
	return words
}

// Every command of gwctl that a document shows exists, has these flags, and takes as many arguments.
// A text in backquotes may name a command without its arguments, or a group.
func TestCommandsInDocumentsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("sk-example"), 0o600); err != nil {
		t.Fatal(err)
	}
	checked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range shownLine.FindAllStringSubmatch(string(text), -1) {
			words, inline := wordsOf(m[1]+m[2]), m[2] != ""
			if at := slices.Index(words, "--secret-file"); at >= 0 && at+1 < len(words) {
				words[at+1] = secret // the file of the reader
			}
			err := gwctl.CheckLine(t, document(t), words)
			if inline && err != nil && slices.ContainsFunc([]string{"is no command", "required:", "accepts ", "required flag"}, func(s string) bool { return strings.Contains(err.Error(), s) }) {
				err = nil
			}
			if err != nil {
				t.Errorf("%s: gwctl %s: %v", path, strings.Join(words, " "), err)
			}
			checked++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 20 {
		t.Errorf("only %d commands found", checked)
	}
}
