package fakegpu

import "fmt"

// InputError says that what a caller asked for makes no sense, as opposed to
// something that could not be done. Its message is one line and, where a name is
// not known, lists those that are.
type InputError struct{ message string }

func (e *InputError) Error() string { return e.message }

func inputErrorf(format string, args ...any) error {
	return &InputError{message: fmt.Sprintf(format, args...)}
}
