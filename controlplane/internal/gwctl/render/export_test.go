package render

// DefaultColumns is for the test that the columns exist.
var DefaultColumns = defaultColumns
