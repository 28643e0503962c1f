package strict

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"modelgateway/controlplane/internal/validation"
)

// decoder writes a tree into Go values and collects field errors.
type decoder struct {
	invalid validation.Errors
	// noNull rejects null for a pointer, where it would have no effect.
	noNull bool
}

func (d *decoder) value(n *node, into any) {
	d.into(n, reflect.ValueOf(into).Elem(), "")
}

// noZero rejects the character U+0000, which Postgres cannot store.
func (d *decoder) noZero(n *node, path string) {
	if strings.ContainsRune(n.text, 0) {
		d.invalid.Add(path, "must not contain the character U+0000")
	}
	for i, item := range n.items {
		d.noZero(item, validation.Index(path, i))
	}
	for _, m := range n.members {
		if strings.ContainsRune(m.name, 0) {
			d.invalid.Add(path, "has a member whose name contains the character U+0000")
			continue
		}
		d.noZero(m.value, validation.Member(path, m.name))
	}
}

var rawMessage = reflect.TypeFor[json.RawMessage]()

func (d *decoder) into(n *node, v reflect.Value, path string) {
	if v.Type() == rawMessage {
		v.SetBytes(n.json())
		return
	}

	// UnmarshalText is preferred to UnmarshalJSON, since it gets the text exactly as written.
	switch own := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		d.ownText(n, own, path)
		return
	case json.Unmarshaler:
		if err := own.UnmarshalJSON(n.json()); err != nil {
			d.invalid.Add(path, "has the wrong type")
		}
		if member, ok := own.(interface{ Get() (*time.Time, bool) }); ok {
			if at, _ := member.Get(); at != nil {
				d.year(*at, path)
			}
		}
		return
	}

	switch v.Kind() {
	case reflect.Pointer:
		if n.kind == null {
			v.SetZero()
			if d.noNull {
				d.invalid.Add(path, "must not be null; omit it to leave it unchanged")
			}
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		d.into(n, v.Elem(), path)
	case reflect.Interface:
		d.anything(n, v, path)
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.slice(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) want(n *node, path string, kinds ...kind) bool {
	if slices.Contains(kinds, n.kind) {
		return true
	}
	d.invalid.Add(path, "must be %s, not %s", kinds[0], n.kind)
	return false
}

func (d *decoder) ownText(n *node, own encoding.TextUnmarshaler, path string) {
	if !d.want(n, path, text, number) {
		return
	}
	if err := own.UnmarshalText([]byte(n.text)); err != nil {
		d.invalid.Add(path, "%s", err)
	}
	if at, ok := own.(*time.Time); ok {
		d.year(*at, path)
	}
}

// The years of times. 9999-12-31T23:00:00-12:00 is in the year 10000 of UTC, of which there is no text: the object could never be shown
// again.
const minYear, maxYear = 1900, 9998

func (d *decoder) year(at time.Time, path string) {
	if y := at.UTC().Year(); !at.IsZero() && (y < minYear || y > maxYear) {
		d.invalid.Add(path, "must be in the years %d to %d", minYear, maxYear)
	}
}

func (d *decoder) anything(n *node, v reflect.Value, path string) {
	if err := json.Unmarshal(n.json(), v.Addr().Interface()); err != nil {
		d.invalid.Add(path, "has the wrong type")
	}
}

func (d *decoder) structure(n *node, v reflect.Value, path string) {
	if !d.want(n, path, object) {
		return
	}
	fields := fieldsOf(v.Type())
	for _, m := range n.members {
		at := validation.Member(path, m.name)
		index, known := fields[m.name]
		if !known {
			d.invalid.Add(at, "is not a known member")
			continue
		}
		d.into(m.value, v.FieldByIndex(index), at)
	}
}

// fieldsOf maps the JSON names of a struct's fields to their indexes, including those of embedded
// structs.
func fieldsOf(t reflect.Type) map[string][]int {
	fields := make(map[string][]int, t.NumField())
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields[name] = f.Index
		}
	}
	return fields
}

func (d *decoder) mapping(n *node, v reflect.Value, path string) {
	if n.kind == null {
		return
	}
	if !d.want(n, path, object) {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.members)))
	for _, m := range n.members {
		value := reflect.New(v.Type().Elem()).Elem()
		d.into(m.value, value, validation.Member(path, m.name))
		v.SetMapIndex(reflect.ValueOf(m.name).Convert(v.Type().Key()), value)
	}
}

func (d *decoder) slice(n *node, v reflect.Value, path string) {
	if n.kind == null {
		return
	}
	if !d.want(n, path, list) {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		d.into(item, v.Index(i), validation.Index(path, i))
	}
}

func (d *decoder) scalar(n *node, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.String:
		if n.loose || d.want(n, path, text) {
			v.SetString(n.text)
		}
	case reflect.Bool:
		if d.want(n, path, boolean) {
			v.SetBool(strings.EqualFold(n.text, "true"))
		}
	default: // integers: no decoded type contains a float
		if !d.want(n, path, number) {
			return
		}
		i, err := strconv.ParseInt(n.text, 10, 64)
		if err != nil || v.OverflowInt(i) {
			d.invalid.Add(path, "must be a whole number in range, not %s", n.text)
			return
		}
		v.SetInt(i)
	}
}

// json returns the node as JSON, with the members in their order.
func (n *node) json() []byte {
	var b bytes.Buffer
	n.write(&b)
	return b.Bytes()
}

func (n *node) write(b *bytes.Buffer) {
	switch n.kind {
	case null:
		b.WriteString("null")
	case boolean:
		b.WriteString(strings.ToLower(n.text)) // YAML also has True
	case number:
		if json.Valid([]byte(n.text)) {
			b.WriteString(n.text)
			return
		}
		writeString(b, n.text) // a number that JSON does not have, such as 0x10 or .inf
	case text:
		writeString(b, n.text)
	case list:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b)
		}
		b.WriteByte(']')
	case object:
		b.WriteByte('{')
		for i, m := range n.members {
			if i > 0 {
				b.WriteByte(',')
			}
			writeString(b, m.name)
			b.WriteByte(':')
			m.value.write(b)
		}
		b.WriteByte('}')
	}
}

func writeString(b *bytes.Buffer, s string) {
	quoted, err := json.Marshal(s)
	if err != nil { // a string always marshals
		panic(err)
	}
	b.Write(quoted)
}
