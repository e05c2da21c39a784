"""Frequent steps in a journey through the emulator's page."""


async def press(where, name, role="button", **options):
    """Press the button, or the link, tab, switch or option."""
    await where.get_by_role(role, name=name, **options).click()


async def see(where, role, name, **options):
    """Wait for the element."""
    await where.get_by_role(role, name=name, **options).wait_for()


async def read(where, text, **options):
    """Wait for the text."""
    await where.get_by_text(text, **options).wait_for()


async def counted(page, text):
    """Wait for the count of the list."""
    await read(page.locator(".list-count"), text, exact=True)


async def keys(page, *names):
    """Press these keys in turn."""
    for name in names:
        await page.keyboard.press(name)


async def visit(page, view):
    """Go to a view of the page."""
    await page.evaluate("view => { location.hash = `#/${view}` }", view)
