"""All that pages are built from, in one place to import from.

`tag` makes any element; `link`, `section`, `badge`, `bar`, `figure`, `wait_mark`, `code_block` and `empty` are
made of it. `button`, `dialog`; `field`, `select`, `checkbox`, `slider`, `form`; `table`; `tabs`; `notice`;
`Moment`, `Elapsed`. The modules they come from show how each is used.
"""

from penstock.web.board.buttons import Button, Dialog, button, dialog
from penstock.web.board.components import Elapsed, LiveTitle, Moment
from penstock.web.board.elements import (
    BASE,
    badge,
    bar,
    code_block,
    empty,
    figure,
    inside,
    link,
    prose,
    say,
    section,
    tag,
    wait_mark,
)
from penstock.web.board.forms import (
    Checkbox,
    Field,
    Select,
    Slider,
    checkbox,
    field,
    form,
    select,
    slider,
    submit,
)
from penstock.web.board.notices import guarded, notice
from penstock.web.board.tables import (
    At,
    Badge,
    Cell,
    Code,
    Column,
    Lasted,
    Link,
    Row,
    Seconds,
    Soft,
    Table,
    table,
)
from penstock.web.board.tabs import Tabs, tabs

__all__ = [
    "BASE",
    "At",
    "Badge",
    "Button",
    "Cell",
    "Checkbox",
    "Code",
    "Column",
    "Dialog",
    "Elapsed",
    "Field",
    "Lasted",
    "Link",
    "LiveTitle",
    "Moment",
    "Row",
    "Seconds",
    "Select",
    "Slider",
    "Soft",
    "Table",
    "Tabs",
    "badge",
    "bar",
    "button",
    "checkbox",
    "code_block",
    "dialog",
    "empty",
    "field",
    "figure",
    "form",
    "guarded",
    "inside",
    "link",
    "notice",
    "prose",
    "say",
    "section",
    "select",
    "slider",
    "submit",
    "table",
    "tabs",
    "tag",
    "wait_mark",
]
