package gwctl_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/gwctl"
)

// The file of a bill is sent packed, with its parameters in the query.
func TestBillIsSentAsAFile(t *testing.T) {
	t.Parallel()
	const text = "day,amount\n2026-11-01,1\n"
	b := setup(t, answerJSON(http.StatusCreated, `{}`))
	b.file("bill.csv", text)
	code, _, errs := b.run("bills", "import", "bill.csv", "--provider=maker", "--credential=a=main,b=batch")
	if code != gwctl.ExitOK {
		t.Fatalf("exit %d, %s", code, errs)
	}
	sent := b.last()
	unpacked, err := gzip.NewReader(strings.NewReader(sent.Body))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(unpacked)
	if err != nil || string(content) != text || sent.Header.Get("Content-Type") != "application/octet-stream" ||
		sent.Method+" "+sent.Path+"?"+sent.Query != "POST /admin/v1/bills?credential=a%3Dmain%2Cb%3Dbatch&provider=maker" {
		t.Errorf("sent %+v with %q, %v", sent, content, err)
	}

	b.file("bill.csv.gz", sent.Body)
	if code, _, errs := b.run("bills", "import", "bill.csv.gz", "--provider=maker"); code != gwctl.ExitOK || b.last().Body != sent.Body {
		t.Errorf("a packed file: exit %d, %s; it was packed again", code, errs)
	}
	for _, args := range [][]string{{"bills", "import", "--provider=maker"}, {"bills", "import", "bill.csv"}, {"bills", "import", "no.csv", "--provider=maker"}} {
		if code, _, errs := b.run(args...); code != gwctl.ExitUsage {
			t.Errorf("%q: exit %d, %s; want %d", args, code, errs, gwctl.ExitUsage)
		}
	}
}
