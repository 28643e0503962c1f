package catalogpages

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

const yaml = "application/yaml"

// secrets matches the secret of a credential in YAML or JSON.
var secrets = regexp.MustCompile(`(?m)(^|[\s{,"'-])secret["']?\s*:`)

// editorView is the data of the page that changes the catalog. It has two steps: the editor, and the review of what the
// document would change. The document that was reviewed is the one that is applied.
type editorView struct {
	Document string
	// Match is the ETag of the catalog that the document is compared with.
	Match string
	// Changes is nil in the editor.
	Changes *adminclient.CatalogChanges
	Rows    []changeRow
	// Stale is set if the catalog was changed after the review that was to be applied.
	Stale bool
	// SignIn is set if the person has to sign in again before the document can be applied.
	SignIn  bool
	Problem *adminclient.Problem
	// List is set in the review of an imported price list.
	List *proposalView
}

type changeRow struct {
	*adminclient.CatalogChange
	Sign string
	Diff []view.Line
	// PriceForm is the address of the form that tells what a new price would have charged; empty for other changes.
	PriceForm string
}

// readCatalog returns the catalog as a document to edit, with its ETag.
func readCatalog(r *kit.Request) (text, match string, err error) {
	answer, err := r.API.GetCatalog(r.Context(), nil, adminclient.WithHeader("Accept", yaml))
	if err != nil {
		return "", "", err
	}
	return string(answer.Body), answer.Header.Get("ETag"), nil
}

func (v *editorView) page() *kit.Page {
	p := &kit.Page{
		Template: "catalog",
		Title:    "Change the catalog",
		Data:     v,
		Command:  "gwctl catalog export > catalog.yaml\ngwctl catalog diff catalog.yaml\ngwctl catalog apply catalog.yaml",
	}
	if v.Problem != nil {
		p.Status = v.Problem.Status
	}
	return p
}

// showEditor shows the catalog as a document.
func showEditor(r *kit.Request) (*kit.Page, error) {
	text, match, err := readCatalog(r)
	if err != nil {
		return nil, err
	}
	return (&editorView{Document: text, Match: match}).page(), nil
}

// downloadCatalog answers with the catalog as a file.
func downloadCatalog(r *kit.Request) (*kit.Page, error) {
	text, _, err := readCatalog(r)
	if err != nil {
		return nil, err
	}
	return &kit.Page{Download: &kit.Download{Name: "catalog.yaml", MediaType: yaml, CopyTo: func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err //nolint:wrapcheck // the console aborts the response
	}}}, nil
}

// changeCatalog takes a document: it shows what the document would change, or applies the one that was reviewed.
func changeCatalog(r *kit.Request) (*kit.Page, error) {
	document, err := uploaded(r)
	if err != nil {
		return nil, err
	}

	if secrets.MatchString(document) {
		// The answer would show the document, and with it the secret.
		return kit.Go("/console/catalog", &kit.Notice{
			Kind: "bad",
			Text: "The document has secrets of credentials, so nothing was done. Leave them out: a credential keeps its secret, " +
				"and the page of its provider sets another.",
		})
	}

	v := &editorView{Document: document, Match: r.PostFormValue("if_match")}
	step := r.PostFormValue("step")
	if step == "edit" {
		return v.page(), nil
	}

	if step == "do" && !r.Session.Fresh() {
		v.SignIn = true
		step = "review"
	}

	if step == "do" {
		done, err := v.apply(r, false)
		if err == nil {
			return kit.Go("/console/catalog", kit.Applied(applied(len(done.Value.Changes)), done.Header))
		}
		if !v.refuse(err) {
			return nil, err
		}
		if v.Problem.Status != http.StatusPreconditionFailed {
			return v.page(), nil
		}
		v.Stale, v.Problem = true, nil
	}

	// A review is of the catalog as it is now: its changes are told by the document and that.
	if _, v.Match, err = readCatalog(r); err != nil {
		return nil, err
	}

	if err := v.review(r); err != nil {
		if !v.refuse(err) {
			return nil, err
		}
		return v.page(), nil
	}

	page := v.page()
	if v.Stale {
		page.Status = http.StatusPreconditionFailed
	}
	if v.SignIn {
		page.Status = http.StatusForbidden
	}

	return page, nil
}

func applied(n int) string {
	if n == 1 {
		return "One change was applied."
	}
	return fmt.Sprintf("%d changes were applied.", n)
}

func (v *editorView) apply(r *kit.Request, dryRun bool) (*adminclient.Response[adminclient.CatalogChanges], error) {
	params := &adminclient.ApplyCatalogParams{DryRun: &dryRun, IfMatch: kit.Optional(v.Match)}
	if !dryRun {
		params.Wait = kit.Wait()
	}
	// JSON is YAML, so the editor takes both.
	return r.API.ApplyCatalog(r.Context(), params, adminclient.CatalogDocument{}, adminclient.WithBody(yaml, []byte(v.Document)))
}

// refuse shows a problem of the document in the editor. It reports whether the error is one.
func (v *editorView) refuse(err error) bool {
	refused, ok := errors.AsType[*adminclient.Error](err)
	if !ok || refused.StatusCode >= http.StatusInternalServerError {
		return false
	}
	v.Problem = &refused.Problem
	v.Problem.Status = refused.StatusCode
	return true
}

// uploaded returns the file of the form, or the text of the editor if no file was chosen.
func uploaded(r *kit.Request) (string, error) {
	const memory = 16 << 20
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		if err := r.ParseForm(); err != nil {
			return "", kit.Invalid("", "The document could not be read, or it is larger than 16 MiB")
		}
		return r.PostFormValue("document"), nil
	}

	if err := r.ParseMultipartForm(memory); err != nil {
		return "", kit.Invalid("", "The document could not be read, or it is larger than 16 MiB")
	}
	defer func() { _ = r.MultipartForm.RemoveAll() }()
	file, head, err := r.FormFile("file")
	if err != nil || head.Size == 0 {
		return r.PostFormValue("document"), nil // no file was chosen
	}
	defer func() { _ = file.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(file); err != nil {
		return "", fmt.Errorf("read the file: %w", err)
	}

	return text.String(), nil
}

func changes(all *adminclient.CatalogChanges) []changeRow {
	rows := make([]changeRow, len(all.Changes))
	for i := range all.Changes {
		c := &all.Changes[i]
		rows[i] = changeRow{c, map[adminclient.CatalogChangeAction]string{
			adminclient.CatalogChangeActionCreate: "good",
			adminclient.CatalogChangeActionRemove: "bad",
			adminclient.CatalogChangeActionUpdate: "info",
		}[c.Action], view.Diff(c.Before, c.After), priceForm(c)}
	}
	return rows
}
