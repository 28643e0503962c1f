// Command screenshots makes the pictures of the console in the documents, from a running stack that the demo has filled:
//
//	make run          in one terminal
//	make demo         in another
//	make screenshots
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
	"modelgateway/scripts/picture"
)

// shot is a picture of the part of a page that a window of its size shows.
type shot struct {
	name          string
	width, height int64
	dark          bool
	// path returns the address of the page.
	path func(ctx context.Context, api *adminclient.Client) (string, error)
}

func page(path string) func(context.Context, *adminclient.Client) (string, error) {
	return func(context.Context, *adminclient.Client) (string, error) { return path, nil }
}

var shots = []shot{
	{"overview-light", 1280, 960, false, page("/console/")},
	{"overview-dark", 1280, 960, true, page("/console/")},
	{"request-light", 1280, 800, false, lastRequest},
	{"account-dark", 1280, 800, true, firstAccount},
	{"diagnosis-narrow-dark", 390, 800, true, page("/console/diagnosis")},
}

// lastRequest is the last request that has a receipt with several lines, if there is one among the last.
func lastRequest(ctx context.Context, api *adminclient.Client) (string, error) {
	list, err := api.ListUsage(ctx, &adminclient.ListUsageParams{Limit: new(50)})
	if err != nil {
		return "", fmt.Errorf("list requests: %w", err)
	}

	path, most := "", 0
	for _, u := range list.Value.Data {
		detail, err := api.GetUsage(ctx, u.RequestID)
		if err != nil {
			return "", fmt.Errorf("read a request: %w", err)
		}
		if lines := len(detail.Value.Receipt.Lines); lines > most {
			path, most = "/console/requests/"+u.RequestID, lines
		}
	}

	if path == "" {
		return "", errors.New("there is no request with a receipt; run make demo")
	}

	return path, nil
}

func firstAccount(ctx context.Context, api *adminclient.Client) (string, error) {
	list, err := api.ListAccounts(ctx, &adminclient.ListAccountsParams{Query: new("Northwind"), Limit: new(1)})
	if err != nil {
		return "", fmt.Errorf("list accounts: %w", err)
	}
	if len(list.Value.Data) == 0 {
		return "", errors.New("there is no account of the demo; run make demo")
	}
	return "/console/accounts/" + list.Value.Data[0].ID, nil
}

func main() {
	dir := flag.String("dir", ".dev", "directory of the running dev stack")
	to := flag.String("to", "docs/images", "directory of the pictures")
	flag.Parse()
	if err := run(context.Background(), *dir, *to); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, to string) error {
	text, err := os.ReadFile(filepath.Join(dir, "stack.json"))
	if err != nil {
		return fmt.Errorf("no dev stack is running; run make run and make demo: %w", err)
	}

	var state devstack.State
	if err := json.Unmarshal(text, &state); err != nil {
		return fmt.Errorf("read the state of the dev stack: %w", err)
	}

	api, err := adminclient.New(state.AdminURL, state.AdminToken)
	if err != nil {
		return fmt.Errorf("admin API: %w", err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // G301: of the repository
		return fmt.Errorf("make the directory: %w", err)
	}

	browser, stop, err := start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := signIn(browser, &state); err != nil {
		return err
	}

	for i := range shots {
		path, err := shots[i].path(ctx, api)
		if err != nil {
			return err
		}
		size, err := take(browser, &shots[i], state.AdminURL+path, filepath.Join(to, "console-"+shots[i].name+".png"))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		_, _ = fmt.Fprintf(os.Stdout, "%s: %d KB, of %s\n", shots[i].name, (size+1023)/1024, path)
	}

	return nil
}

// limit is far longer than a page takes.
const limit = time.Minute

func start(ctx context.Context) (browser context.Context, stop context.CancelFunc, err error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		options := append(
			chromedp.DefaultExecAllocatorOptions[:len(chromedp.DefaultExecAllocatorOptions):len(chromedp.DefaultExecAllocatorOptions)],
			chromedp.ExecPath(path),
			chromedp.NoSandbox,
			chromedp.WSURLReadTimeout(limit),
			chromedp.Flag("disable-gpu", true),
			chromedp.Flag("disable-background-networking", true),
			chromedp.Flag("force-color-profile", "srgb"),
		)
		allocated, end := chromedp.NewExecAllocator(ctx, options...)
		tab, closeTab := chromedp.NewContext(allocated)
		return tab, func() { closeTab(); end() }, nil
	}
	return nil, nil, errors.New("needs Chromium (make screenshots installs Debian's)")
}

func signIn(browser context.Context, state *devstack.State) error {
	if err := chromedp.Run(browser, chromedp.Navigate(state.AdminURL+"/console/sign-in")); err != nil {
		return fmt.Errorf("open the console: %w", err)
	}
	answer, err := chromedp.RunResponse(
		browser,
		chromedp.SetValue("#token", state.AdminToken, chromedp.ByID),
		chromedp.Submit("#token", chromedp.ByID),
	)
	if err != nil || answer.Status != 200 {
		return fmt.Errorf("sign in: %w", err)
	}
	return nil
}

// drawn is true when the page is complete: the charts and the figures that come live, too.
const drawn = `document.readyState === "complete" &&
	![...document.querySelectorAll("figure[data-chart]")].some((f) => !f.querySelector("canvas")) &&
	!document.querySelector(".loading")`

func take(browser context.Context, s *shot, url, to string) (size int, err error) {
	ctx, cancel := context.WithTimeout(browser, limit)
	defer cancel()
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}

	var shown []byte
	err = chromedp.Run(
		ctx,
		chromedp.EmulateViewport(s.width, s.height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}),
		chromedp.Navigate(url),
		chromedp.Poll(drawn, nil),
		chromedp.CaptureScreenshot(&shown),
	)
	if err != nil {
		return 0, fmt.Errorf("take a picture: %w", err)
	}

	whole, err := png.Decode(bytes.NewReader(shown))
	if err != nil {
		return 0, fmt.Errorf("read the picture: %w", err)
	}

	small, err := picture.Reduce(whole, picture.Colours)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(to, small, 0o644); err != nil { //nolint:gosec // G306: of the repository
		return 0, fmt.Errorf("write the picture: %w", err)
	}

	return len(small), nil
}
