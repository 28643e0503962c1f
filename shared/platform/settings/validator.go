package settings

import (
	"errors"
	"fmt"
)

// Validator collects the errors of a configuration. The zero value has none.
type Validator struct{ errs []error }

// Reject records an error if wrong is true. The message names the setting.
func (v *Validator) Reject(wrong bool, format string, args ...any) {
	if wrong {
		v.errs = append(v.errs, fmt.Errorf("config: "+format, args...))
	}
}

// Err returns all recorded errors joined, or nil.
func (v *Validator) Err() error { return errors.Join(v.errs...) }
