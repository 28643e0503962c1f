package jsonspan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// oracle determines with encoding/json whether Parse should accept body: valid JSON in valid UTF-8, one object, no name
// twice in one object, not too deep.
func oracle(body []byte) bool {
	if !json.Valid(body) || !utf8.Valid(body) || bytes.TrimLeft(body, " \t\r\n")[0] != '{' {
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	return unique(dec, 1) == nil
}

// unique reads one value from dec and fails on a duplicate name or excessive depth.
func unique(dec *json.Decoder, depth int) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if depth > MaxDepth {
		return errors.New("too deep")
	}
	seen := map[string]bool{}
	for dec.More() {
		if open == '{' {
			name, err := dec.Token()
			if err != nil {
				return err
			}
			if seen[name.(string)] {
				return fmt.Errorf("duplicate %q", name)
			}
			seen[name.(string)] = true
		}
		if err := unique(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// seeds are the texts that fuzzing starts from, and that the comparison with encoding/json runs.
var seeds = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":1,"b":[true,false,null],"c":{"d":"e"}}`, `{"a":1}x`, `{"a":1}{}`, `[]`, `1`, ``, ` `,
	`{"model":"m","\u006dodel":"n"}`, `{"a":{"b":1,"b":2}}`, `{"a":[{"b":1},{"b":2}]}`, `{"a":"\ud83d\ude00 \ud83d \u00e9"}`,
	`{"a":"привет, мир","b":"漢字かな","c":"😀é"}`, "{\"a\":\"\xff\"}", "{\"a\":\"\xc0\x80\"}", "{\"a\":\"\xed\xa0\x80....\"}", "{\"a\":\"\xe0\x80\x80....\"}",
	"{\"a\":\"\xf0\x80\x80\x80\"}", "{\"a\":\"\xf4\x90\x80\x80\"}", "{\"a\":\"\xe6\xbc\"}", "{\"a\":\"tab\there\"}", "{\"a\":\"nul\x00\"}", "{\"a\":\"\x7f\"}",
	`{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\u12`, `{"a":"`, `{"a":"\`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{a:1}`, `{'a':1}`,
	`{"a":01}`, `{"a":-}`, `{"a":-0}`, `{"a":1.}`, `{"a":.5}`, `{"a":1.5e+10}`, `{"a":1e}`, `{"a":1E-}`, `{"a":1e5.5}`, `{"a":+1}`, `{"a":NaN}`, `{"a":tru}`,
	`{"a":truex}`, `{"a":nul}`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a":[1 2]}`, `{"a":[}`, `{"a":{]}`, "\ufeff{}", "{\"a\":1}\x00", "{\"\xc3\xa9\":1,\"\\u00e9\":2}",
	`{"":1,"":2}`, `{"":1}`, `{"a":"\/\b\f\n\r\t\"\\"}`, `{"k1":1,"k2":1,"k3":1,"k4":1,"k5":1,"k6":1,"k7":1,"k8":1,"k9":1,"k\u0039":1}`,
	`{"k1":1,"k2":{"k1":1,"k1":2},"k3":1}`, `{"\ud800":1,"\ud801":2}`, `{"\ud800":1,"\ufffd":2}`, "\t\r\n{\t\r\n\"a\"\t\r\n:\t\r\n1\t\r\n,\t\r\n\"b\":2}\t\r\n",
}
