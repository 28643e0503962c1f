// Package revokedirect is the command `gwctl keys revoke-direct`, which revokes
// keys by NATS alone.
package revokedirect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"modelgateway/shared/apikey"
)

// ErrUsage is wrapped by errors about flags and input. Nothing was sent then.
var ErrUsage = errors.New("wrong usage")

// Revocation selects the keys to revoke.
type Revocation struct {
	// NATSURL has the name and password of the user, CAFile the certificates that the server is verified against.
	NATSURL, CAFile string
	Hashes          []apikey.Hash
	// Note receives progress messages.
	Note func(format string, args ...any)
}

// Func revokes keys.
type Func func(context.Context, Revocation) error

const long = `Revoke keys while every control plane, or Postgres, is unavailable. It needs the user operator in NATS (gwctl nats-permissions
--operator). The texts of the keys are read from the standard input, one per line, and hashed under the peppers; or --hash
has their hashes.

All keys are revoked at once, under each pepper. Proxies get the revocations immediately; the command ends when no proxy can
admit one of the keys any more, after about session.window. It does not know whether a key exists: check that a request with
it gets 401. A secret that a rotation has ended revokes nothing: its key is in use with another one. A control
plane that is back writes the revocations to Postgres. Until then they are in NATS alone: if NATS loses its data before, revoke
the keys again.`

// Command returns the command. revoke may be nil if the build does not support it.
func Command(in io.Reader, out, notes io.Writer, revoke Func) *cobra.Command {
	var r Revocation
	var peppers, hashes []string

	cmd := &cobra.Command{
		Use:   "revoke-direct",
		Short: "Revoke a key without a control plane, by NATS alone",
		Args:  cobra.NoArgs,
		Long:  long,
	}
	cmd.Example = "  gwctl keys revoke-direct --nats-url \"nats://operator:$OPERATOR_NATS_PASSWORD@nats:4222\" --pepper-file pepper < " +
		"leaked-keys"
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if revoke == nil || r.NATSURL == "" {
			return fmt.Errorf("%w: --nats-url is required, and a build that can connect to NATS", ErrUsage)
		}
		if r.Hashes, err = readHashes(hashes, peppers, in); err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		r.Note = func(format string, args ...any) { fmt.Fprintf(notes, format+"\n", args...) }
		if err := revoke(cmd.Context(), r); err != nil {
			return err
		}
		fmt.Fprintln(out, "No proxy admits the keys. Control planes write the revocation to Postgres.")
		return nil
	}
	cmd.Flags().
		StringVar(&r.NATSURL, "nats-url", "", "`URLs` of the NATS servers with name and password of the user operator, separated by commas")
	cmd.Flags().StringVar(&r.CAFile, "nats-ca-file", "", "`file` with the CA certificates that NATS servers are verified against")
	cmd.Flags().
		StringArrayVar(&peppers, "pepper-file", nil, "`file` with the peppers under which keys are hashed, one per line (repeatable)")
	cmd.Flags().StringArrayVar(&hashes, "hash", nil, "`hash` of a key in hexadecimal, instead of its text (repeatable)")

	return cmd
}

// readHashes decodes hashes, or returns those of the keys in the input under each
// pepper.
func readHashes(hashes, peppers []string, in io.Reader) (all []apikey.Hash, err error) {
	for _, text := range hashes {
		var hash apikey.Hash
		if err := hash.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("--hash: %w", err)
		}
		all = append(all, hash)
	}

	if len(all) > 0 {
		return all, nil
	}
	if len(peppers) == 0 {
		return nil, errors.New("--pepper-file or --hash is required")
	}

	const maxInput = 1 << 20
	text, err := io.ReadAll(io.LimitReader(in, maxInput))
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}

	for _, file := range peppers {
		hashers, err := readPeppers(file)
		if err != nil {
			return nil, fmt.Errorf("--pepper-file %s: %w", file, err)
		}
		for key := range strings.FieldsSeq(string(text)) {
			if err := apikey.Check(key); err != nil {
				return nil, fmt.Errorf("the standard input has a line that is no API key: %w", err)
			}
			for _, hasher := range hashers {
				all = append(all, hasher.Hash(key))
			}
		}
	}

	if len(all) == 0 {
		return nil, errors.New("there is no key on the standard input, or no pepper in the files")
	}

	return all, nil
}

func readPeppers(file string) (hashers []*apikey.Hasher, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read peppers: %w", err)
	}
	for line := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\n' || r == '\r' }) {
		hasher, err := apikey.NewHasher([]byte(line))
		if err != nil {
			return nil, err
		}
		hashers = append(hashers, hasher)
	}
	return hashers, nil
}
