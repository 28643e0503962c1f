package videos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
)

const fileField = "input_reference"

// maxFields bounds the parts of a form: the format has five parameters.
const maxFields = 64

// IsForm reports whether the Content-Type of a request is that of a form.
func IsForm(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "multipart/form-data"
}

// ReadForm reads a request body that is a form. It has the same parameters as JSON, except that input_reference may be
// a file. It overwrites body, and a file in the Request refers to it. The Request owns its JSON object.
func ReadForm(contentType string, body []byte) (*format.Request, *apierr.Error) {
	f, err := splitForm(contentType, body)
	if err != nil {
		return nil, apierr.New(http.StatusBadRequest, apierr.InvalidRequest, "The request body is not valid multipart/form-data.").
			WithCause(err)
	}

	obj := jsonspan.Acquire()
	if err := obj.Parse(f.object()); err != nil {
		obj.Release()
		return nil, apierr.New(http.StatusBadRequest, apierr.InvalidRequest, "The form contains a field more than once.").WithCause(err)
	}

	r, refused := spec.Read(obj)
	if refused != nil {
		obj.Release()
		return nil, refused
	}

	r.OwnBody()
	r.File = f.file
	switch {
	case f.misplaced != "":
		r.Refuse(format.Unsupported(f.misplaced))
	case f.file != nil && r.Value(fileField) != nil:
		r.Refuse(format.Invalid(fileField, "either a file or a URL"))
	}

	return r, nil
}

// form is the content of a form on its way to a JSON object.
type form struct {
	members []byte // as JSON, each after a comma
	nested  []byte // those of input_reference
	file    *format.File
	// misplaced is the name of a file field that must not be a file.
	misplaced string
}

func splitForm(contentType string, body []byte) (f form, err error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return f, fmt.Errorf("parse content type: %w", err)
	}

	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	// A part is read into the beginning of body: files are too large for a copy. The reader copies what it reads ahead,
	// and the values of all parts so far are shorter than what it has read, so no byte is overwritten that it needs.
	room := body
	for range maxFields {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return f, fmt.Errorf("read form: %w", err)
		}
		n, err := readPart(room, part)
		if err != nil {
			return f, err
		}
		if err := f.add(part, room[:n:n]); err != nil {
			return f, err
		}
		room = room[n:]
	}

	return f, errors.New("read form: too many fields")
}

// readPart reads the value of a part, which is shorter than room.
func readPart(room []byte, part *multipart.Part) (n int, err error) {
	for {
		more, err := part.Read(room[n:])
		n += more
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("read field: %w", err)
		}
	}
}

func (f *form) add(part *multipart.Part, value []byte) error {
	name := part.FormName()
	_, isFile := fileName(part)
	switch {
	case name == "" || !utf8.ValidString(name):
		return errors.New("read form: a field without a name")
	case isFile && name == fileField && f.file == nil:
		file, _ := fileName(part)
		f.file = &format.File{
			Field: name,
			Name:  file,
			Type:  part.Header.Get("Content-Type"),
			Data:  value,
		}
		return nil
	case isFile:
		f.misplaced = name
		return nil
	case !utf8.Valid(value):
		return errors.New("read form: a field that is not text")
	}

	if inner, ok := strings.CutPrefix(name, fileField+"["); ok {
		f.nested = appendMember(f.nested, strings.TrimSuffix(inner, "]"), string(value))
		return nil
	}

	f.members = appendMember(f.members, name, string(value))
	return nil
}

// fileName returns the name of the file in a part; ok is false for a plain field.
func fileName(part *multipart.Part) (name string, ok bool) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", false
	}
	name, ok = params["filename"]
	return name, ok
}

func appendMember(dst []byte, name, value string) []byte {
	dst = append(dst, ',')
	dst = jsonspan.AppendString(dst, name)
	dst = append(dst, ':')
	return jsonspan.AppendString(dst, value)
}

// object returns the fields of the form as a JSON object.
func (f *form) object() []byte {
	members := f.members
	if len(f.nested) > 0 {
		members = append(members, `,"`+fileField+`":{`...)
		members = append(members, f.nested[1:]...)
		members = append(members, '}')
	}
	if len(members) > 0 {
		members = members[1:]
	}
	return append(append([]byte("{"), members...), '}')
}

// encodeForm makes a form of an outgoing object and the client's file.
func encodeForm(dst, object []byte, file *format.File) (body []byte, contentType string) {
	const heads = 4 << 10 // more than the lines between the fields need
	buf := bytes.NewBuffer(slices.Grow(dst, len(object)+len(file.Data)+heads))
	w := multipart.NewWriter(buf)
	for name, value := range jsonspan.Members(object) {
		if text, ok := jsonspan.Text(nil, value); ok {
			value = text
		}
		mustWrite(w.WriteField(string(name), string(value)))
	}

	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", multipart.FileContentDisposition(file.Field, file.Name))
	if file.Type != "" {
		h.Set("Content-Type", file.Type)
	}

	part, err := w.CreatePart(h)
	mustWrite(err)
	_, err = part.Write(file.Data)
	mustWrite(err)
	mustWrite(w.Close())

	return buf.Bytes(), w.FormDataContentType()
}

// mustWrite handles errors that cannot occur, because the writer writes to memory.
func mustWrite(err error) {
	if err != nil {
		panic(fmt.Sprintf("videos: write form: %v", err))
	}
}
